"""The archive of reports that were made by themselves."""
