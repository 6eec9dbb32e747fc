"""Who works on simulated clusters, and in which teams."""

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
TEAMS = ("vision", "language", "robotics")
