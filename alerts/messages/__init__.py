"""What a message says, and the seam to the channels that carry it."""
