"""The switches that one look at a fabric saw."""

from collections.abc import Mapping
from dataclasses import dataclass

Counters = Mapping[str, int | None]
"""By the field of `ErrorCount`; None is not measured."""


class NotReadError(Exception):
    """No look: says what was asked, and why there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPort:
    """A port of a switch as it is now; of an other end that does not answer nothing is known.

    `counters` or `physical_state` None: they were not read.
    """

    up: bool
    name: str = ""
    physical_state: str | None = ""
    peer: str = ""
    peer_guid: str = ""
    peer_port: int = 0
    peer_port_name: str = ""
    at_switch: bool = False
    bits_per_second: int | None = None
    lanes: int | None = None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSwitch:
    """A switch that answered."""

    guid: str
    ports: Mapping[int, SeenPort]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The switches that answered, by name.

    `doubted`: by GUID those that did not, because whoever passes on what they say is silent, as `why` says.
    `unasked`: those of them of which nobody could be asked at all.
    """

    switches: Mapping[str, SeenSwitch]
    doubted: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    why: str = ""
