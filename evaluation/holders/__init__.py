"""What is reported about holders of GPUs, compared with the truth: idle GPUs, and how jobs ended."""
