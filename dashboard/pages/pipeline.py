"""The page of the monitoring itself: whether the pages can be trusted."""

from dashboard.pipeline.page import draw

draw()
