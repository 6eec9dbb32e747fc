"""The weekly report: read once through the hub, decided in one value, written in five formats."""
