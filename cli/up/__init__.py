"""The command `gpuvigil up`: everything on this machine, as supervised children."""

from .up_command import main

__all__ = ["main"]
