"""The page of all incidents, and of the whole story of one."""
