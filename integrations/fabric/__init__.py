"""What readers of switches share: what a look saw, what changed since the one before, and the loop."""
