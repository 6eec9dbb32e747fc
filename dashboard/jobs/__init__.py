"""The pages of jobs: all of them, and one."""
