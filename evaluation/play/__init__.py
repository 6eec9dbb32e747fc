"""`gpuvigil play`: the detectors on fleets of one's own description, with faults that anybody may define."""
