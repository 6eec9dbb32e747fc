"""The page of all incidents, and the whole story of one."""
