"""The site's own Prometheus, asked by instant queries (prometheus.io/docs/prometheus/latest/querying/api)."""

from typing import Any

from gpuvigil.config import StoreSettings, SwitchesSettings
from gpuvigil.errors import ConfigError, StoreError
from gpuvigil.store.http import Limits, Web

from ..fabric.seen import NotReadError
from .answers import Answers, Sample, readable
from .equipment_mapping import EquipmentMapping, PartTable
from .mapping import STATE, SwitchMapping


class Prometheus:
    """What answers `switches.url`."""

    def __init__(self, settings: SwitchesSettings) -> None:
        """ConfigError for a file of the settings that cannot be read, or without an address."""
        if not settings.url:
            raise ConfigError("switches.url is not set: name the site's Prometheus")
        self._url = f"{settings.url.rstrip('/')}/api/v1/query"
        server = StoreSettings(
            kind="prometheus",
            url=settings.url,
            token_file=settings.token_file,
            user=settings.user,
            password_file=settings.password_file,
            ca_file=settings.ca_file,
        )
        limits = Limits(seconds=settings.timeout_seconds, bytes=settings.answer_bytes)
        self._web = Web(server, "switches", limits)

    def answers(self, mapping: SwitchMapping) -> tuple[Answers, tuple[str, ...]]:
        """To every query of a mapping that is answered so that it can be read, and why each other one is not.

        NotReadError where the states are not answered.
        """
        answers: dict[str, list[Sample]] = {STATE: self._ask(mapping, STATE)}
        why: list[str] = []
        for name in mapping.tables:
            try:
                answers[name] = answers[name] if name in answers else self._ask(mapping, name)
            except NotReadError as error:
                why.append(str(error))
        said, more = readable(mapping, answers)
        return said, (*why, *more)

    def part(self, mapping: EquipmentMapping, table: PartTable, number: int) -> list[Sample]:
        """To the query of one table about equipment; NotReadError where it is not answered."""
        return self._vector(mapping.where(number), table.query)

    def _ask(self, mapping: SwitchMapping, name: str) -> list[Sample]:
        return self._vector(mapping.where(name), mapping.tables[name].query)

    def _vector(self, where: str, query: str) -> list[Sample]:
        try:
            return samples(self._web.post(self._url, {"query": query}))
        except (StoreError, TypeError, ValueError) as error:
            raise NotReadError(f"{where} {query!r}: {error}") from None


def samples(answer: Any) -> list[Sample]:
    """Of what a server answered; TypeError or ValueError says why it is no answer to an instant query."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise TypeError("the answer is none of Prometheus' API; is switches.url right?")
    if data.get("resultType") != "vector":
        kind = str(data.get("resultType"))[:40]
        raise ValueError(f"the query gives a {kind}, not a vector: ask for series, without [5m]")
    return [_sample(it) for it in data["result"]]


def _sample(said: Any) -> Sample:
    try:
        labels, (_, value) = said["metric"], said["value"]
        return Sample(labels={str(k): str(v) for k, v in labels.items()}, value=str(value))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError("the answer has a series that cannot be read") from None
