"""Long fault runs with printed seeds; what fails here becomes a test in `tests/`."""
