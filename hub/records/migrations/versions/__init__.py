"""Layouts by number. Each must stay readable by the hub before it: two hubs are upgraded in turn."""
