"""A week added up by hand, from samples and records as the hub's API gives them; nothing of ours is used.

Each sample stands for the tick after it. Whoever an allocation names held the GPU to the second.
"""

import json
import urllib.parse
import urllib.request
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

Gpu = tuple[str, str]
Sample = tuple[float, float | None, float | None, float | None]  # when, up, utilization, energy
FIELDS = ("up", "utilization_percent", "energy_joules")


@dataclass(slots=True)
class Totals:
    """GPU-hours, and kWh."""

    in_service: float = 0.0
    allocated: float = 0.0
    used: float = 0.0
    idle_held: float = 0.0
    energy_kwh: float = 0.0
    idle_of_team: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class Hub:
    """Whom to ask."""

    url: str
    token: str

    def get(self, path: str, **asked: Any) -> Any:
        return json.loads(self._ask(f"{path}?{urllib.parse.urlencode(asked)}", None))

    def samples(self, cluster: str, start: float, end: float, tick: float) -> pa.Table:
        """With a step of one tick a mean is the one sample in it."""
        question = {
            "measurement": "gpu",
            "fields": list(FIELDS),
            "where": {"cluster": cluster},
            "start": _text(start),
            "end": _text(end),
            "step_seconds": tick,
        }
        body = self._ask("/api/v1/telemetry/series", json.dumps(question).encode())
        return pa.ipc.open_stream(body).read_all()

    def _ask(self, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Token {self.token}"}
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


def totals(
    hub: Hub, cluster: str, span: tuple[float, float], tick: float, idle_after: float
) -> Totals:
    """What a span of seconds since 1970 adds up to."""
    samples = _by_gpu(hub, cluster, span, tick)
    found = Totals(in_service=_in_service(samples, tick))
    held = _allocations(hub, cluster, span)
    for gpu, of_gpu in samples.items():
        _add(found, of_gpu, held.get(gpu, []), tick, idle_after)
    return found


def _by_gpu(
    hub: Hub, cluster: str, span: tuple[float, float], tick: float
) -> dict[Gpu, list[Sample]]:
    """A day at a time: no answer has to hold a week."""
    found: dict[Gpu, list[Sample]] = defaultdict(list)
    start, end = span
    while start < end:
        table = hub.samples(cluster, start, min(start + 86_400, end), tick)
        seconds = [at.timestamp() for at in table["at"].to_pylist()]
        columns = [table[name].to_pylist() for name in ("node", "uuid", *FIELDS)]
        for at, node, uuid, *values in zip(seconds, *columns, strict=True):
            found[node, uuid].append((at, *values))
        start += 86_400
    return {gpu: sorted(samples, key=lambda one: one[0]) for gpu, samples in found.items()}


def _allocations(
    hub: Hub, cluster: str, span: tuple[float, float]
) -> dict[Gpu, list[tuple[float, float, str, str]]]:
    """From when to when, by whom and of which team."""
    asked = {"kind": "allocation", "subject": cluster, "limit": 100_000}
    found: dict[Gpu, list[tuple[float, float, str, str]]] = defaultdict(list)
    for record in hub.get("/api/v1/records", **asked)["records"]:
        body = record["body"]
        _, node, _, uuid = map(urllib.parse.unquote, record["subject"].split("/"))
        ended = body.get("ended_at")
        since = max(_seconds(record["at"]), span[0])
        until = span[1] if ended is None else min(_seconds(ended), span[1])
        if since < until:
            held = (since, until, str(body["holder"]), body.get("account") or "")
            found[node, uuid].append(held)
    return {gpu: sorted(them) for gpu, them in found.items()}


def _add(
    found: Totals,
    samples: list[Sample],
    held: list[tuple[float, float, str, str]],
    tick: float,
    idle_after: float,
) -> None:
    spans = [_Held(*one) for one in held]
    starts = [one.since for one in spans]
    before: Sample | None = None
    for sample in samples:
        at, up, percent, _ = sample
        found.energy_kwh += _grown(before, sample, tick) / 3.6e6
        before = sample
        answers = up == 1 and percent is not None
        if up != 0 and not answers:
            continue
        for one in spans[max(bisect_right(starts, at) - 1, 0) :]:
            if one.since >= at + tick:
                break
            hours = max(min(one.until, at + tick) - max(one.since, at), 0.0) / 3600
            found.allocated += hours
            found.used += hours * (percent or 0.0) / 100 if answers else 0.0
            one.idle(hours if answers and percent == 0 else None, idle_after / 3600)
    for one in spans:
        one.idle(None, idle_after / 3600)
        found.idle_held += one.idle_hours
        found.idle_of_team[one.team] += one.idle_hours


@dataclass(slots=True)
class _Held:
    """A GPU in one hand, and how long it computed nothing in it."""

    since: float
    until: float
    holder: str
    team: str
    idle_hours: float = 0.0
    still: float = 0.0  # hours since it last computed, or was not there

    def idle(self, hours: float | None, least: float) -> None:
        """Some more at 0 %, or None: it has ended."""
        if hours is not None:
            self.still += hours
            return
        self.idle_hours += self.still if self.still >= least else 0.0
        self.still = 0.0


def _grown(before: Sample | None, now: Sample, tick: float) -> float:
    """Joules since the sample before; what nobody watched is nobody's."""
    if before is None or before[3] is None or now[3] is None or now[0] - before[0] > 1.5 * tick:
        return 0.0
    return max(now[3] - before[3], 0.0)


def _in_service(samples: Mapping[Gpu, Sequence[Sample]], tick: float) -> float:
    """GPU-hours: a node was there in a quarter of an hour in which it sent, less the lost minutes."""
    there = {(gpu[0], at // 900) for gpu, them in samples.items() for at, *_ in them}
    quarters = sum(
        (gpu[0], quarter) in there for gpu in samples for quarter in {q for _, q in there}
    )
    lost = sum(up == 0 for them in samples.values() for _, up, *_ in them)
    return quarters / 4 - lost * tick / 3600


def _text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
