"""What gpuvigil does itself, where it is told to: nodes with a fault are drained, and given back after it."""
