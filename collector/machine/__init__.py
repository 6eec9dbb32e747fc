"""The machine around the GPUs: what of it fails, as far as the kernel tells without privilege."""
