"""Inference servers on a node: what runs and waits at each replica of a model, as they report it."""
