"""The page of inference: which GPUs serve, who holds them, and whether fewer would do."""
