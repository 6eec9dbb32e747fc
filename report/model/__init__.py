"""What a report is made of: its content as one value, its tables, its numbers and its spans of time."""
