"""The overview page."""

from dashboard.overview.page import draw

draw()
