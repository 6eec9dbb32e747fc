"""A witness of what was acknowledged and what is stored, run on the machine with compose.yaml's ports.

`python -m tests.compose_witness watch TOKEN` prints every tick of the collector that its /metrics show, and
every line of its own that the hub has acknowledged, until its standard input ends. `... found PROFILE TOKEN`
prints as JSON the times of all stored ticks and lines in milliseconds, the incidents, and the versions of hub
and node.
"""

import json
import re
import select
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from gpuvigil.hub_client import Hub
from gpuvigil.model import RecordKind
from gpuvigil.store.hub import HubStore

HUB = "http://127.0.0.1:8428"
METRICS = "http://127.0.0.1:9431/metrics"
EVERY_SECONDS = 0.25
NODE, WITNESS = "gpu-001", "witness"
# A field of the row that each tick makes about the node, and of the witness's lines.
FIELD = "load_average"
_TICK = re.compile(r"^gpuvigil_node_last_tick_timestamp_seconds\S* (\S+)$", re.MULTILINE)
# Shorter than the time between two ticks or lines, so that each is in a step of its own.
_STEP = timedelta(seconds=0.1)
_SPAN = timedelta(hours=1)


def watch(token: str) -> None:
    """Print `tick MILLISECONDS` and `kept MILLISECONDS` until standard input ends."""
    threading.Thread(target=_write, args=[token], daemon=True).start()
    last = 0
    while not select.select([sys.stdin], [], [], EVERY_SECONDS)[0]:
        now = _tick()
        if now not in (0, last):
            sys.stdout.write(f"tick {now}\n")
            sys.stdout.flush()
            last = now


def _tick() -> int:
    """Return when the collector last read, in milliseconds; 0 while it does not answer."""
    try:
        with urllib.request.urlopen(METRICS, timeout=2) as answer:
            found = _TICK.search(answer.read().decode())
    except OSError:
        return 0
    return round(float(found[1]) * 1000) if found else 0


def _write(token: str) -> None:
    """Write lines to the hub for ever; a line counts once the hub has acknowledged it."""
    while True:
        at = time.time_ns() // 1_000_000
        line = f"node,cluster={WITNESS},node={WITNESS} {FIELD}=1 {at}\n".encode()
        place = f"{HUB}/api/v2/write?precision=ms"
        asked = urllib.request.Request(place, line, {"Authorization": f"Token {token}"})
        try:
            with urllib.request.urlopen(asked, timeout=5):
                sys.stdout.write(f"kept {at}\n")
                sys.stdout.flush()
        except OSError:
            pass
        time.sleep(EVERY_SECONDS)


def found(profile: str, token: str) -> Mapping[str, list[int] | list[str]]:
    """Return the node's ticks from the profile's store, the witness's lines, the incidents and the versions."""
    hub = Hub(HUB, lambda: token)
    ticks: Callable[[], Iterator[int]] = {
        "embedded": lambda: _in_hub(hub, NODE),
        "victoriametrics": _in_victoriametrics,
        "influxdb": _in_influxdb,
    }[profile]
    kept = _in_hub(hub, WITNESS)
    incidents = [record.id for record in hub.records(RecordKind.INCIDENT)]
    status = hub.status()
    nodes = [one["version"] for one in status["nodes"] if one["node"] == NODE]
    return {
        "tick": sorted(set(ticks())),
        "kept": sorted(set(kept)),
        "incidents": incidents,
        "versions": [status["version"], *nodes],
    }


def _in_hub(hub: Hub, node: str) -> Iterator[int]:
    now = datetime.now(timezone.utc)
    rows = HubStore(hub).series("node", [FIELD], {"node": node}, (now - _SPAN, now), _STEP)
    for at, offset in zip(rows["at"].to_pylist(), rows["offset_seconds"].to_pylist(), strict=True):
        yield round((at.timestamp() + offset) * 1000)


def _in_victoriametrics() -> Iterator[int]:
    words = {"match[]": f'node_{FIELD}{{node="{NODE}"}}'}
    text = _get(f"http://127.0.0.1:8429/api/v1/export?{urllib.parse.urlencode(words)}")
    for line in text.splitlines():
        yield from json.loads(line)["timestamps"]


def _in_influxdb() -> Iterator[int]:
    query = f'SELECT "{FIELD}" FROM "node" WHERE "node" = \'{NODE}\''
    words = {"db": "gpuvigil", "epoch": "ms", "q": query}
    answer: Any = json.loads(_get(f"http://127.0.0.1:8086/query?{urllib.parse.urlencode(words)}"))
    for series in answer["results"][0].get("series", ()):
        yield from (at for at, _ in series["values"])


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(sys.argv[2])
    else:
        sys.stdout.write(json.dumps(found(*sys.argv[2:])))
