"""The site's settings for pseudonyms."""

import hashlib
from datetime import timedelta

from gpuvigil.clock import Clock
from gpuvigil.config import Config, secret_source
from gpuvigil.hub_client import Hub
from gpuvigil.hub_client.seen import FilteredHub

from .names import Names
from .records_view import Pseudonyms, RecordsView
from .roles import HOLDER_OF_THE_LINK


def pseudonyms(config: Config) -> Pseudonyms | None:
    """Return the pseudonyms, keyed by the service token that pages and reports share; None where names stay."""
    days = config.people.pseudonyms_after_days
    if not days:
        return None
    token = secret_source(config.hub.service_token_file, "hub.service_token_file", "service token")
    key = hashlib.sha256(b"gpuvigil pseudonyms" + token().encode()).digest()
    return Pseudonyms(after=timedelta(days=days), key=key)


def with_pseudonyms(hub: Hub, config: Config, clock: Clock) -> Hub:
    """Return the hub as a report reads it: what ended long enough ago names nobody."""
    found = pseudonyms(config)
    if found is None:
        return hub
    sight = RecordsView(person=HOLDER_OF_THE_LINK, names=Names(), pseudonyms=found)
    return FilteredHub(hub, lambda records: sight.records(records, clock.now()), tuple)
