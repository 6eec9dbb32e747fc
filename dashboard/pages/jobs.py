"""The page of all jobs: what bounds each, and what it would lose."""

from dashboard.jobs.page import draw

draw()
