"""Scheduled reports: when each is due, the edition of each team, sending, and the archive."""
