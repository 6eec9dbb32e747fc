"""A process that works off transitions until none is left: `python -m tests.hub.claimant`.

Each is finished with a notice that names it and who did it, as alerts keep a decision.
"""

import sys
import time
from pathlib import Path

from gpuvigil.clock import SystemClock
from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind

LEASE_SECONDS = 3.0
WORK_SECONDS = 0.02


def main(urls: str, token_file: str, owner: str) -> None:
    """Claim, work, finish; a claim that was lost is left to whom it went.

    The last two looks together take longer than a lease, so that nobody leaves work behind.
    """
    hub = Hub(urls, Path(token_file).read_text(encoding="utf-8").strip)
    idle = 0
    while idle < 2:
        try:
            idle = 0 if _work(hub, owner) else idle + 1
        except HubUnavailable:
            time.sleep(0.1)
        except HubRefused as error:
            if error.status != 409:
                raise
    hub.close()


def _work(hub: Hub, owner: str) -> int:
    claimed = hub.claim(
        RecordKind.TRANSITION, owner, lease_seconds=LEASE_SECONDS, limit=5, wait_seconds=2.0
    )
    for one in claimed:
        time.sleep(WORK_SECONDS)
        now = SystemClock().now()
        done = Record(
            kind=RecordKind.NOTICE, id=f"{one.id} {owner}", at=now, subject="c", parent=one.id
        )
        _insist(hub, owner, one.id, done)
    return len(claimed)


def _insist(hub: Hub, owner: str, name: str, done: Record) -> None:
    while True:
        try:
            hub.finish(RecordKind.TRANSITION, owner, [name], [done])
        except HubUnavailable:
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
