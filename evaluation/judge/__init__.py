"""What detectors claimed, held against what was true: pure functions, no clocks, no files."""
