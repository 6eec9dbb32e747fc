"""What detectors claimed, compared with the truth: pure functions that read no clock and no file."""
