"""The page of nodes that are out of service: why, since when, who works on them, and the next step."""
