"""The page of inference: which GPUs serve, whose they are, and whether fewer would do."""
