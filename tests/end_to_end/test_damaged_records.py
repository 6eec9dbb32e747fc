"""Records are damaged after people were told: nobody is told again, and the damage is told once."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpuvigil.model import EventKind, RecordKind
from tests.alerts.process import AlertsProcess
from tests.analyzer.process import Analyzer, running
from tests.analyzer.scene import event, gpu, inventory, node
from tests.hub.test_records_damage import backed_up, cut, garbled_log, garbled_pages
from tests.polling import wait_until
from tests.receiver import Received, Receiver
from tests.servers import HubProcess

pytestmark = pytest.mark.server

# Twice as long as alerts takes to look at what is due, and at gpuvigil itself.
SETTLED_SECONDS = 12.0


def said(received: list[Received]) -> Counter[tuple[str, str, str]]:
    """How often what was said: status, fault and which incident."""
    payloads = [one.payload for one in received if one.accepted]
    return Counter(
        (it["status"], it["alerts"][0]["labels"]["alertname"], it["alerts"][0]["fingerprint"])
        for it in payloads
    )


def firing(received: list[Received]) -> list[str]:
    return [fault for status, fault, _ in said(received).elements() if status == "firing"]


def sent(hub: HubProcess) -> bool:
    return bool(hub.hub().records(RecordKind.NOTICE, states=["sent"]))


@pytest.mark.parametrize("damage", [cut, garbled_pages, garbled_log], ids=lambda it: it.__name__)
def test_what_was_told_is_not_told_again_and_the_damage_is_told_once(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with HubProcess(tmp_path / "hub") as hub, Receiver() as receiver:
        analyzer = Analyzer(hub)
        alerts = AlertsProcess(hub, tmp_path, ops={"url": receiver.url})
        with contextmanager(running)(analyzer), alerts:
            wait_until("there is a backup", lambda: backed_up(hub), 60.0)
            now = datetime.now(timezone.utc)
            xid = event(EventKind.XID, gpu(), now, 95).to_record()
            hub.hub().write_records([inventory(node()).to_record(), xid])
            receiver.wait(lambda got: bool(firing(got)), 60.0)
            (told, *_) = firing(receiver.received())
            # Delivery is at least once: until this is kept, a kill alone has it told again.
            wait_until("it is known as told", lambda: sent(hub), 30.0)
            alerts.kill()
            analyzer.end()
            hub.kill() if damage is garbled_log else hub.stop()
            damage(hub.data)
            hub.start()
            analyzer.start()
            alerts.start()
            receiver.wait(lambda got: "gpuvigil_records" in firing(got), 60.0)
            time.sleep(SETTLED_SECONDS)
            counted = Counter(firing(receiver.received()))
            assert counted["gpuvigil_records"] == 1
            assert counted[told] == 1
            assert set(said(receiver.received()).values()) == {1}
