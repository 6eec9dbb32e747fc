"""From a body of line protocol to tables, and whether it came before."""
