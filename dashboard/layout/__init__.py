"""What every page has: its frame, its search, and parts that several pages share."""
