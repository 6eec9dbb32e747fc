"""Who is told what, and why not: pure rules."""
