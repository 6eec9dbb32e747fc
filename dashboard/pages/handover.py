"""What one shift leaves to the next."""

from dashboard.handover.page import draw

draw()
