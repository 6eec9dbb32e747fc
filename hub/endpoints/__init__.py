"""The hub's HTTP endpoints, one file for each family of paths."""
