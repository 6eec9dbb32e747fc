"""The server side on a machine with systemd: what `gpuvigil server` makes there."""
