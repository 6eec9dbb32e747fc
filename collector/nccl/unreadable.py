"""The errors of everything that reads what a job's process wrote."""


class UnreadableError(ValueError):
    """What was read is malformed or too large; the message says which, in one line."""


class TooLargeError(UnreadableError):
    """What was read is too large, and will be the next time, too."""
