"""The page of users and teams."""

from dashboard.people.page import draw

draw()
