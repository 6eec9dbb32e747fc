"""Who holds a GPU."""
