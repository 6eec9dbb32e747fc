"""Users and teams."""

from dashboard.people.page import draw

draw()
