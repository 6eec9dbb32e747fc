"""The page of GPUs that are held and do little: idle, or half used."""
