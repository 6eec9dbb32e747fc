"""Creation of silences, with the same rules for the command and the page."""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta

from ..clock import micros
from ..errors import ConfigError
from ..model import Silence
from .matchers import matcher

# Anything that has to be muted for longer belongs in the routes.
LONGEST = timedelta(days=90)


def new_id() -> str:
    """Return a new unique id for a silence."""
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
    """Return a new silence; raise ConfigError that says what is wrong with it.

    With the id of an existing silence, this is a later version that replaces it.
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
