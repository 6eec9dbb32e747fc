"""What bounds each job, and what it would lose."""

from dashboard.jobs.page import draw

draw()
