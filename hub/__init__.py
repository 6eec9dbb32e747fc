"""The one process that opens the embedded store and the records."""
