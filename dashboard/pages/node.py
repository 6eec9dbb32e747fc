"""The page of one node."""

from dashboard.device.node_page import draw

draw()
