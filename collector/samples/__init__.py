"""What the reader reads from GPUs, and how it reports to the agent."""
