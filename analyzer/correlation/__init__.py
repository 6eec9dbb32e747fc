"""From findings to candidates: one per cause, with who is hit."""
