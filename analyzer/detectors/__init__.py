"""One fault each: pure functions of a window."""
