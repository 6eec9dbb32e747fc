"""What records of the version before say in words only. To be deleted with the version after this.

The words stand here as they were written then: what is called otherwise now changes nothing here.
"""

import logging
from functools import cache

from .cause import Cause, CoveredBy, Uncovered


def cause_in_words(reason: str) -> Cause | None:
    """The cause that a transition or a notice tells in its reason alone."""
    what = reason.removeprefix("covered by ")
    if what != reason:
        _warn()
        return CoveredBy(fingerprint="", what=what)
    if reason == "no longer covered":
        _warn()
        return Uncovered()
    return None


@cache
def _warn() -> None:
    """Once in a process: there may be thousands of such records."""
    logging.getLogger(__name__).warning(
        "incidents of an older version are read by their words; the next version cannot do that"
    )
