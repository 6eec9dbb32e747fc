"""What NCCL and PyTorch report about a stalled job."""
