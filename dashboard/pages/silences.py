"""What is silenced."""

from dashboard.silences.page import draw

draw()
