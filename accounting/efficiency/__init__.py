"""Held GPUs that do little, and the reason."""
