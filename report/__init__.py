"""The weekly report: inputs are read once through the hub, built into one value, and written in five formats."""
