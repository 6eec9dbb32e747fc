"""Hardware: what failed where, repeat offenders, parts on their way back, racks."""
