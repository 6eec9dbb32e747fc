"""The page of reports."""

from dashboard.reports.page import draw

draw()
