"""The agent of a node: it puts together what all others read."""
