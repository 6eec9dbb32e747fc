"""Lists that a page and a command show alike: holders, idle GPUs, inference servers."""
