"""The selftest: a marked fault for each rule, played towards the running hub, and what came of it."""
