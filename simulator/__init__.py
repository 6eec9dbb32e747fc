"""A simulated cluster, played by one process."""
