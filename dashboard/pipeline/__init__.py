"""The page that says whether the other pages can be trusted."""
