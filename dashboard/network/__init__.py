"""The page of the network: whether it is a bottleneck, which links, whose jobs."""
