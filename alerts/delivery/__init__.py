"""Delivery of due notices through the workers of channels."""
