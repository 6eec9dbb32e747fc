"""Network faults: what counters of switches add to those of hosts."""
