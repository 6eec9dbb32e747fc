"""A scrape's result, as the child passes it to the collector."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MOST_REPLICAS = 64  # of one address
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of one model behind an address; None is what its server does not report."""

    server: str  # "vllm" or "triton"
    model: str
    engine: str  # vLLM's engine number, or Triton's version of the model
    gpus: tuple[str, ...] = ()  # UUIDs, where the server itself names them
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_percent: float | None = None
    # Since the server began:
    requests: float | None = None
    preemptions: float | None = None
    queue_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one address: its replicas, or why nothing is known of them."""

    url: str
    replicas: tuple[Replica, ...] = ()
    why: str = ""


_TEXTS = ("server", "model", "engine")
_NUMBERS = tuple(it.name for it in fields(Replica) if it.name not in {*_TEXTS, "gpus"})


def line(answer: Answer) -> str:
    """Return the answer as one line of JSON, without its line end."""
    return json.dumps(asdict(answer))


def parse(text: str | bytes) -> Answer:
    """Parse a line that `line` wrote; ValueError for anything else."""
    try:
        value = json.loads(text)
        return Answer(
            url=str(value["url"]),
            why=str(value["why"]),
            replicas=tuple(map(_replica, value["replicas"][:MOST_REPLICAS])),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no answer of the child's: {error!r}") from None


def _replica(value: Mapping[str, Any]) -> Replica:
    numbers = {name: number(value[name]) for name in _NUMBERS}
    return Replica(
        server=name_of(value["server"]),
        model=name_of(value["model"]),
        engine=name_of(value["engine"]),
        gpus=tuple(map(name_of, value["gpus"])),
        **numbers,
    )


def name_of(text: object) -> str:
    """Return a name from outside in a form that a tag can carry."""
    said = "".join(ch if ch.isprintable() and ch != "\\" else "?" for ch in str(text))
    return said[:LONGEST_NAME].encode(errors="replace").decode().strip()


def number(value: object) -> float | None:
    """Return a finite, non-negative number; None for all else, which was not measured."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 2**62 else None
