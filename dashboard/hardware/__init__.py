"""The page of hardware: what failed where, repeat offenders, parts being returned, racks."""
