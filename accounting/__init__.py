"""What GPUs were used for, what that cost and what was wasted: pure functions over telemetry and records."""
