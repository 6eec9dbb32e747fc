"""Who serves inference, and what their servers had to do."""

from dashboard.inference.page import draw

draw()
