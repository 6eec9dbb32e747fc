"""Child processes and threads that may get stuck, and their costs."""
