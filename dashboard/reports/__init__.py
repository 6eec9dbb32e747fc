"""The archive of scheduled reports."""
