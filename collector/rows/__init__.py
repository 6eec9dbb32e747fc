"""Rows of telemetry: from samples to what is stored and shown on `/metrics`."""
