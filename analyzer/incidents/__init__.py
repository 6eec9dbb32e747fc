"""The book of incidents, and what is written into one."""
