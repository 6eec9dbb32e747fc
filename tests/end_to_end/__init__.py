"""Whole processes: from a sensor to a message."""
