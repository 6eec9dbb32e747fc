"""The page of GPUs that are held and do little: idle, half used, or serving too few requests."""
