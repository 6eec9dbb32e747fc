"""Recordings: a directory of files in one layout, written from a hub, read, played and judged."""
