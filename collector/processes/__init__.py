"""Child processes and threads that may get stuck, and what they cost."""
