"""What is known of an incident, and the way of its messages."""
