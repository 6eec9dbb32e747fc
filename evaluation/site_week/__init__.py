"""What alerts sends in a week of a site: its own rules, on what the detectors reported."""
