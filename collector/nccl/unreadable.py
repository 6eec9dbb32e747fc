"""The errors of everything that reads what a job's process wrote, and the checks of its values."""

_LONGEST = 128


class UnreadableError(ValueError):
    """What was read is malformed or too large; the message says which, in one line."""


class TooLargeError(UnreadableError):
    """What was read is too large, and will be the next time, too."""


def text(value: object) -> str:
    """Return a value that is a short, printable text; TypeError for any other."""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise TypeError("a text was expected")
    return value


def number(value: object, least: int = 0) -> int:
    """Return a value that is a whole number from `least` on; TypeError for any other."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**53:
        raise TypeError("a number was expected")
    return value


def flag(value: object) -> bool:
    """Return a value that is true or false; TypeError for any other."""
    if not isinstance(value, bool):
        raise TypeError("true or false was expected")
    return value
