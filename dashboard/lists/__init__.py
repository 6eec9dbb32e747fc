"""Lists that a page and a command share: holders, idle GPUs, jobs, inference servers, the network."""
