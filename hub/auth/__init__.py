"""Who may come to the hub, and what each may do."""
