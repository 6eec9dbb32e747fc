"""Who may come in: sign-in, sessions, and the door in front of the pages."""
