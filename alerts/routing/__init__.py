"""What is known of an incident, and which way its messages go."""
