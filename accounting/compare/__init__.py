"""Faults by what nodes ran on at that time, so that a roll-out is judged."""
