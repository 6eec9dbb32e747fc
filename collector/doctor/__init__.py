"""`gpuvigil doctor`: what this node can and cannot measure and send, and why, one line each."""
