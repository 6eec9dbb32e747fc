"""People who look: what an open dashboard asks the hub for, without the browser.

`python -m benchmarks.store_readers --config FILE --people 5` runs for each the dashboard's own
`Snapshot`, as a dashboard server with the overview open does, and asks every ten seconds for the
six hours that a GPU's page shows. Runs until it is told to stop.
"""

import argparse
import random
import signal
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from dashboard.data.snapshot import Snapshot
from dashboard.device.hub_queries import GPU_FIELDS
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config
from gpuvigil.config import load as read_config
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.store.hub import HubStore

REFRESH_SECONDS = 2.0
CHART_SECONDS = 10.0
CHART_SPAN, CHART_STEP = timedelta(hours=6), timedelta(minutes=1)


def main() -> int:
    """Look until SIGTERM."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.store_readers")
    options.add_argument("--config", type=Path, required=True)
    options.add_argument("--people", type=int, default=5)
    chosen = options.parse_args()
    config = read_config(chosen.config)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    people = [
        threading.Thread(target=look, args=(config, random.Random(number), stop))
        for number in range(chosen.people)
    ]
    for person in people:
        person.start()
    stop.wait()
    for person in people:
        person.join()
    return 0


def look(config: Config, chance: random.Random, stop: threading.Event) -> None:
    """One person: an overview that renews itself, and now and then the page of another GPU."""
    connect, clock = service_hubs(config.hub), SystemClock()
    snapshot = Snapshot(connect, clock, config.analyzer, REFRESH_SECONDS)
    stop.wait(chance.uniform(0.0, REFRESH_SECONDS))
    snapshot.start()
    charted = clock.monotonic()
    with closing(connect()) as hub:
        while not stop.wait(REFRESH_SECONDS):
            snapshot.view()
            if clock.monotonic() - charted >= CHART_SECONDS:
                charted = clock.monotonic()
                chart(hub, snapshot, chance, clock)
    snapshot.stop()


def chart(hub: Hub, snapshot: Snapshot, chance: random.Random, clock: SystemClock) -> None:
    """The curves of some GPU's page."""
    gpus = [gpu.uuid for one in snapshot.inventories().values() for gpu in one.gpus]
    if gpus:
        now = clock.now()
        where = {"uuid": chance.choice(gpus)}
        HubStore(hub).series("gpu", GPU_FIELDS, where, (now - CHART_SPAN, now), CHART_STEP)


if __name__ == "__main__":
    sys.exit(main())
