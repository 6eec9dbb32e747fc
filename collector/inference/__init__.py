"""What inference servers on a node say of themselves: what runs and waits at each replica of a model."""
