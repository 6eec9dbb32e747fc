"""The overview."""

from dashboard.overview.page import draw

draw()
