"""What one shift leaves to the next."""
