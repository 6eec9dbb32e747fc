"""Automatic actions, where they are enabled: faulty nodes are drained, and resumed after the fault."""
