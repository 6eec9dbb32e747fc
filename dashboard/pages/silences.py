"""The page of silences."""

from dashboard.silences.page import draw

draw()
