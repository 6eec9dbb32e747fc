"""The page of held GPUs that do little."""

from dashboard.efficiency.page import draw

draw()
