"""Nodes that are out of service: why, since when, who has them, and what is next."""
