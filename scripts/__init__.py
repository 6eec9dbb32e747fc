"""The project's tools, called by make."""
