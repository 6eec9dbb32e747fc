"""Notices to the holders of idle GPUs."""
