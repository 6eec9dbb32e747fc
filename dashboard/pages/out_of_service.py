"""The page of nodes that are out of service."""

from dashboard.out_of_service.page import draw

draw()
