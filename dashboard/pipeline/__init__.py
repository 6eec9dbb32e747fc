"""The page of the monitoring itself: whether the other pages can be trusted."""
