"""Records in SQL."""
