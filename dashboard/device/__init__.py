"""The pages of one GPU and of one node, over a window of time that their address names."""
