"""Logs each fact once, for as long as it holds."""

from collections.abc import Mapping

from gpuvigil.log import Log, Value

_Key = tuple[str, str]


class Said:
    """Remembers what was said, of what."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: dict[str, dict[_Key, Mapping[str, Value]]] = {}

    def only(self, fact: str, now: Mapping[_Key, Mapping[str, Value]]) -> None:
        """Say `fact` of each node or job and what it is about, unless the same was said and was so since."""
        before = self._said.get(fact, {})
        for (of, about), values in sorted(now.items()):
            if before.get((of, about)) != values:
                self._log.info(fact, of=of, about=about, **values)
        self._said[fact] = now if isinstance(now, dict) else dict(now)
