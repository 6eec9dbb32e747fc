"""One way to tell people each."""
