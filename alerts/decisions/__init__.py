"""Pure rules that decide who is notified of what, and why not."""
