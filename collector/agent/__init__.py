"""A node's agent: combines what the collector's sensors, books and child processes read."""
