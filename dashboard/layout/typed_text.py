"""Cleaning of what people type."""

LONGEST_NAME = 200


def cleaned(text: str, longest: int) -> str:
    """Return text that is safe to store and show: no control characters, and not too long."""
    shown = "".join(ch if ch.isprintable() or ch == "\n" else " " for ch in text)
    return shown.strip()[:longest].rstrip()
