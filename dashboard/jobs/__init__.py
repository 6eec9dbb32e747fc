"""The pages of all jobs and of one job."""
