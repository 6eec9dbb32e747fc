"""The overview."""

from dashboard.overview import draw

draw()
