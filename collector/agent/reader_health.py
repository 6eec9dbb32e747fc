"""Whether a reader that runs is still worth keeping."""

from enum import Enum


class Verdict(Enum):
    """What to do with a reader that runs."""

    KEEP = "keep"
    FROZEN = "reader says nothing"
    STUCK = "no driver call of the reader comes back"


def judge(
    heard_seconds_ago: float, silent_seconds: float | None, patience_seconds: float
) -> Verdict:
    """`silent_seconds` is the reader's own word on its calls, `heard_seconds_ago` the age of it."""
    if heard_seconds_ago >= patience_seconds:
        return Verdict.FROZEN
    if silent_seconds is not None and silent_seconds >= patience_seconds:
        return Verdict.STUCK
    return Verdict.KEEP
