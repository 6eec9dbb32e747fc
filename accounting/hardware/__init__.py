"""Hardware that fails repeatedly, and parts returned to the maker."""
