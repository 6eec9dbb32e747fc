"""What the hub answers over HTTP, one file for each family of paths."""
