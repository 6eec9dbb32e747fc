"""Code that all services share: data types, tables and the client of the hub."""

__version__ = "0.1.0"
