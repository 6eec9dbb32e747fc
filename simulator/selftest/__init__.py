"""The selftest: a marked fault for each rule, played to the running hub, and its outcome."""
