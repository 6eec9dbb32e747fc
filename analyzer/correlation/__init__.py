"""From findings to candidates for incidents: one per cause, with its impact."""
