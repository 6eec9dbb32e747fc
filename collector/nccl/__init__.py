"""What NCCL and PyTorch say of a job that stands still."""
