"""What the web servers of all services share."""
