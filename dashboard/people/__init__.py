"""The page of users and teams: what they held, used and left idle, and what would help."""
