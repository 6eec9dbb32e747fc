"""What reports were made."""

from dashboard.reports.page import draw

draw()
