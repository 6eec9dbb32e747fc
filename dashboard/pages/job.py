"""The page of one job."""

from dashboard.jobs.job_page import draw

draw()
