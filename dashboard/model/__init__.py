"""What pages are made of: clusters, GPUs and ports as columns, and what was read of them."""
