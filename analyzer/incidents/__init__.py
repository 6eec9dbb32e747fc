"""The book of incidents, and what is added to one."""
