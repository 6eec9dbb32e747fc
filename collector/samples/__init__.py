"""What the reader reads of GPUs, and how it tells the agent."""
