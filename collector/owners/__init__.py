"""The holders of a node's GPUs."""
