"""Whether the network is the bottleneck, which link, and whose job."""

from dashboard.network.page import draw

draw()
