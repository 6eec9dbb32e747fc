"""Authentication and authorization of the hub's clients."""
