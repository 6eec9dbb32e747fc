"""The agent on every node: reads sensors, spools, ships to the hub and serves /metrics."""
