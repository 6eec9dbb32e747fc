"""The inputs of a report, read through the hub."""
