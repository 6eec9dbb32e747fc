"""Hardware that fails again and again, and parts on their way back to the maker."""
