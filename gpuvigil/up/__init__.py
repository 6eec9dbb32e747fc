"""The command `gpuvigil up`: everything on this machine, as supervised children."""

from .command import main

__all__ = ["main"]
