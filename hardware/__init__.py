"""What can only be tested on a machine with a real NVIDIA GPU and its driver."""
