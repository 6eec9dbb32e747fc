"""Whether what the pages say can be trusted."""

from dashboard.pipeline.page import draw

draw()
