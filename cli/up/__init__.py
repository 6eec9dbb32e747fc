"""The command `gpuvigil up`: all services on this machine, as supervised child processes."""

from .up_command import main

__all__ = ["main"]
