"""What the detectors would have reported about the past that a hub keeps, against what was reported."""
