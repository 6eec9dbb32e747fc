"""The page of inference servers and their load."""

from dashboard.inference.page import draw

draw()
