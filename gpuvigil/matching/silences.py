"""How a person makes a silence, by command or on the page: the same rules for both."""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta

from ..clock import micros
from ..errors import ConfigError
from ..model import Silence
from .matchers import matcher

# What has to be silent for longer is a matter of routes.
LONGEST = timedelta(days=90)


def new_id() -> str:
    """A name for a silence that no other has."""
    return f"s-{os.urandom(4).hex()}"


def made(  # noqa: PLR0913 - each is something that its author says
    matchers: Iterable[str],
    by: str,
    reason: str,
    starts_at: datetime,
    span: timedelta,
    at: datetime,
    *,
    id_: str = "",
) -> Silence:
    """A new silence; ConfigError says what is wrong with it.

    Made again by the same id, corrected perhaps, it follows what was made before.
    """
    try:
        texts = tuple(str(matcher(text)) for text in matchers)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not texts:
        raise ConfigError('a silence needs a matcher, like node="n1"')
    if not by.strip() or not reason.strip():
        raise ConfigError("a silence needs somebody's name and a reason")
    return Silence(
        id=id_ or new_id(),
        matchers=texts,
        by=by.strip(),
        reason=reason.strip(),
        at=at,
        starts_at=starts_at,
        ends_at=starts_at + span,
        version=micros(at),
    )
