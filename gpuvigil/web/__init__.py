"""Code that the web servers of all services share."""
