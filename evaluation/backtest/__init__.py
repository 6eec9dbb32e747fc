"""What the detectors would have said of the past that a hub keeps, against what was said."""
