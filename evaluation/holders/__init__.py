"""What is said to and of those who hold GPUs, held against the truth: idle GPUs, and how jobs ended."""
