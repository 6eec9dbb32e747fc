"""The shift handover page."""

from dashboard.handover.page import draw

draw()
