"""The errors of all that reads what a job's process wrote."""


class UnreadableError(ValueError):
    """What was read is not what it should be, or is too large; its text says which, in one line."""


class TooLargeError(UnreadableError):
    """It will be too large the next time, too."""
