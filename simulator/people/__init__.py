"""The people of simulated clusters, and their teams."""

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
TEAMS = ("vision", "language", "robotics")
