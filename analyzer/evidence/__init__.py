"""Queries on a window that several detectors share."""
