"""What several detectors ask of a window."""
