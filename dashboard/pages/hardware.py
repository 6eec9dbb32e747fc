"""The page of failed hardware and racks."""

from dashboard.hardware.page import draw

draw()
