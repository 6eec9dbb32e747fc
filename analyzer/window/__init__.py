"""What detectors see: one frozen view of the fleet, and its parts."""
