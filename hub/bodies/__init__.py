"""Parsing of line-protocol bodies into tables, and detection of bodies that are sent again."""
