"""What a power loss may leave of files: the calls of a real program are recorded, and cut off."""
