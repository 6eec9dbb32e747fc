"""Fleets of training jobs, what their ranks report, and what was reported about them, compared with the truth."""
