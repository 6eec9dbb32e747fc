"""Telemetry on its way into the store: queued, checked, committed, compacted."""
