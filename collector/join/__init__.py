"""How a node gets to a hub: what `gpuvigil join` asks, writes and waits for."""
