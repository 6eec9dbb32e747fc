"""Reads of one kind of sensor each."""
