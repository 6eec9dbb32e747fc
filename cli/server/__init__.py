"""The command `gpuvigil server`: set up the services on a machine with systemd."""
