"""Logs each fact once, for as long as it holds."""

from collections.abc import Mapping

from gpuvigil.log import Log, Value

_Key = tuple[str, str]


class ChangeLogger:
    """Remembers what was logged, about what."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._logged: dict[str, dict[_Key, Mapping[str, Value]]] = {}

    def log_changes(self, fact: str, now: Mapping[_Key, Mapping[str, Value]]) -> None:
        """Log `fact` about each node or job and topic, unless it was logged and has held since."""
        before = self._logged.get(fact, {})
        for (of, about), values in sorted(now.items()):
            if before.get((of, about)) != values:
                self._log.info(fact, of=of, about=about, **values)
        self._logged[fact] = now if isinstance(now, dict) else dict(now)
