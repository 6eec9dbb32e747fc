"""A fleet's month, faster than time: what people would have been told of it, and why not."""

import os
import secrets
from dataclasses import asdict
from pathlib import Path

import pytest

from evaluation.fingerprint import fleet_hash, judge_hash
from simulator.fleet import FleetSettings
from soak.results import ROOT, recorded
from tests.alerts.month.account import accounts
from tests.alerts.month.fleet import kept
from tests.alerts.month.outbox import CONFIGURATIONS, configuration, run

pytestmark = pytest.mark.timeout(24 * 3600)

NODES = int(os.environ.get("SOAK_NODES") or 16)
DAYS = float(os.environ.get("SOAK_DAYS") or 30.0)
# Eight times what large clusters see at most, so that a small one's month has something to tell.
FAULT_RATE = float(os.environ.get("SOAK_FAULT_RATE") or 60.0)
# A pass of the detectors every so often; events wake them at once, as ever.
TICK_SECONDS = float(os.environ.get("SOAK_TICK_SECONDS") or 120.0)


def test_a_month_is_told_once_and_all_silence_has_a_reason(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    asked = {"nodes": NODES, "days": DAYS, "fault_rate": FAULT_RATE, "tick_seconds": TICK_SECONDS}
    with recorded("month", seed=seed, fleet=fleet_hash(), judge=judge_hash(), **asked) as result:
        settings = FleetSettings(seed=seed, nodes=NODES, days=DAYS, fault_rate=FAULT_RATE)
        played = kept(settings, TICK_SECONDS, ROOT / "build/month")
        found = {}
        for name in CONFIGURATIONS:
            folder = tmp_path / name
            folder.mkdir()
            alerts = configuration(name, folder)
            found[name] = accounts(played, run(played, alerts), alerts)
        result.tells(
            faults=sum(not one.hidden for one in played.truths),
            incidents=len({step.incident for step in played.steps}),
            transitions=len(played.steps),
            silences=len(played.silences),
            channels={name: [asdict(one) for one in them] for name, them in found.items()},
        )
        wrong = {one.channel: one.wrong for them in found.values() for one in them if one.wrong}
        assert not wrong
