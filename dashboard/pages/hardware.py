"""Hardware that failed, and racks."""

from dashboard.hardware.page import draw

draw()
