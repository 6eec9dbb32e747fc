"""Access control: sign-in, sessions, and the middleware in front of the pages."""
