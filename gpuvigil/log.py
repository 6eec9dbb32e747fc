"""A structured log: one fact per line, `time level service fact key=value ...`, on standard error."""

import logging
import sys
from datetime import datetime, timezone

Value = str | int | float | bool | None


class Log:
    """The log of one service. Values with spaces are quoted; callers keep secrets out."""

    def __init__(self, service: str) -> None:
        self._logger = logging.getLogger(f"gpuvigil.{service}")

    def debug(self, fact: str, **values: Value) -> None:
        self._write(logging.DEBUG, fact, values)

    def info(self, fact: str, **values: Value) -> None:
        self._write(logging.INFO, fact, values)

    def warning(self, fact: str, **values: Value) -> None:
        self._write(logging.WARNING, fact, values)

    def error(self, fact: str, **values: Value) -> None:
        self._write(logging.ERROR, fact, values)

    def _write(self, level: int, fact: str, values: dict[str, Value]) -> None:
        if self._logger.isEnabledFor(level):
            pairs = "".join(f" {key}={quoted(value)}" for key, value in values.items())
            self._logger.log(level, "%s%s", quoted(fact), pairs)


def quoted(value: Value) -> str:
    """Return the value as one word, or in double quotes with line breaks made visible."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text and all(ch.isprintable() and ch not in ' "=' for ch in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in escaped) + '"'


class _Line(logging.Formatter):
    """Formats a line: `2026-01-31T12:00:00.123Z info hub listening port=8086`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
        service = record.name.rpartition(".")[2]
        line = f"{stamp} {record.levelname.lower()} {service} {record.getMessage()}"
        if record.exc_info:
            line += " error=" + quoted(self.formatException(record.exc_info))
        return line


def configure(level: str) -> None:
    """Send every log line of this process to standard error in our format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Libraries are heard only from warnings on; their routine lines are not of interest.
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("gpuvigil").setLevel(level.upper())
