"""Turns telemetry and events into findings, incidents and transitions."""
