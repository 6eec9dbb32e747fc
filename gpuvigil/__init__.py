"""The kernel that all services share: words, tables and the way to the hub."""

__version__ = "0.1.0"
