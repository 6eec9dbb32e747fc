"""What people type, as it can be kept."""

LONGEST_NAME = 200


def cleaned(text: str, longest: int) -> str:
    """Text that can be stored and shown: nothing that steers a terminal, and not too long."""
    shown = "".join(ch if ch.isprintable() or ch == "\n" else " " for ch in text)
    return shown.strip()[:longest].rstrip()
