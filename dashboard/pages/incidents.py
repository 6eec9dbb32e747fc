"""The page of incidents."""

from dashboard.incidents.page import draw

draw()
