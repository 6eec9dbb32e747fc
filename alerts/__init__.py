"""Tells people about transitions, or records why not."""
