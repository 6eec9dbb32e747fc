"""A simulated fleet's month, faster than time: what its people would have been told, and why not."""
