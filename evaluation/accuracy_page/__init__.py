"""`docs/accuracy.md`, made from the plays that are kept."""
