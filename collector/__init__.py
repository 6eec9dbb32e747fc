"""The agent on every node: reads sensors, spools, ships, serves /metrics."""
