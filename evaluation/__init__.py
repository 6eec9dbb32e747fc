"""How well faults are found: the detectors on a fleet whose truth is known, compared with others."""
