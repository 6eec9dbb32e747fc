"""The page about a part that failed, for a ticket with its manufacturer."""
