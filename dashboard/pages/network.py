"""The page of the network: whether it is the bottleneck, which links, whose jobs."""

from dashboard.network.page import draw

draw()
