"""How a node joins a hub: what `gpuvigil join` asks for, writes and waits for."""
