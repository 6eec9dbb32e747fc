"""Modules that each read one kind of sensor."""
