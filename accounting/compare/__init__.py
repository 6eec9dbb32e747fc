"""Fault rates by what nodes ran on at the time, to judge a roll-out."""
