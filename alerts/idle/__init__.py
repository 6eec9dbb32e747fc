"""Holders of idle GPUs: who is written to, and what."""
