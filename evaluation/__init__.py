"""How well faults are found: the detectors on a fleet whose truth is known, and who else would."""
