"""GPUs that are held and do little, and the reason."""
