"""The page of held GPUs that do little: idle, or half used."""
