"""What bounds a job, what it would lose now, and what failures cost jobs: pure, over telemetry and records."""
