"""Errors that gpuvigil raises on purpose.

GpuvigilError                 what, where and what to do, in one line
├── ConfigError               the configuration is wrong: exit code 2, nothing was started
├── HubError                  talking to the hub failed
│   ├── HubUnavailable        no answer, or 429 / 5xx: try again later, lose nothing
│   └── HubRefused            4xx: the request is at fault and must not be repeated as it is
├── LifecycleError            a signal that the incident's state does not allow: our own bug
├── StoreError                the time-series store cannot do what was asked
│   └── StoreUnavailable      no answer, or 429 / 5xx: try again later
└── SensorError               one sensor could not be read; the others still can
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class GpuvigilError(Exception):
    """A failure that says in one line what went wrong, where, and what to do."""

    exit_code: ClassVar[int] = 1


class ConfigError(GpuvigilError):
    """A wrong configuration; the message names the file or variable, the key and the remedy."""

    exit_code: ClassVar[int] = 2


class HubError(GpuvigilError):
    """A failed exchange with the hub."""


class HubUnavailable(HubError):
    """The hub gave no answer, or asked to come back later."""

    def __init__(
        self, message: str, retry_after_seconds: float | None = None, todo: str = ""
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.todo = todo  # for the person who typed a command; empty where the message says it


class HubRefused(HubError):
    """The hub answered 4xx: repeating the same request cannot help.

    `details` is the JSON object in its answer, such as the refused `lines` of a write.
    """

    def __init__(self, message: str, status: int, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.details = details or {}


class LifecycleError(GpuvigilError):
    """A signal that the transition table does not allow in this state."""


class StoreError(GpuvigilError):
    """The time-series store cannot do what was asked.

    `status` and `said` are the store's HTTP status and answer, where it gave one.
    """

    status = 0
    said = ""


class StoreUnavailable(StoreError):
    """A remote time-series store gave no answer, or asked to come back later."""


class SensorError(GpuvigilError):
    """A sensor that could not be read."""
