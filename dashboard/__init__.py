"""The dashboard: the pages that people look at."""
