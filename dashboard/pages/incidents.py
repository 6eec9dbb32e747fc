"""The incidents."""

from dashboard.incidents.page import draw

draw()
