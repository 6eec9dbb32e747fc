"""HTTP as the hub answers it: bodies, errors, time limits, long polls."""
