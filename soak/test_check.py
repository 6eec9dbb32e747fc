"""A hundred node checks on a machine without a free core: none invents a fault."""

import os
import random
import secrets
from dataclasses import asdict
from pathlib import Path

import pytest

from soak.results import recorded
from tests.collector.agent import Agent
from tests.collector.check.busy import BUSY_PROCESSES, GPUS, SICK, Tally, play
from tests.collector.check.node import Node
from tests.collector.check.test_check_busy import beside
from tests.collector.receiver import Receiver
from tests.nvml_fake import FakeDriver, build

pytestmark = pytest.mark.timeout(7200)

CHECKS = int(os.environ.get("SOAK_CHECKS") or 100)
_STATES = ["well", "well", *SICK]


def test_checks_on_a_busy_machine_invent_nothing_and_beside_a_collector_lose_nothing(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    library, chance = build(tmp_path), random.Random(seed)
    with recorded("check", seed=seed, busy_processes=BUSY_PROCESSES) as result:
        with Receiver() as receiver:
            node, agent = (
                _node(tmp_path / "beside", library),
                Agent(tmp_path / "agent", receiver.url),
            )
            beside(node, agent)
            with_collector = play(node, agent, CHECKS // 2, chance, _STATES)
        result.tells(with_collector=_said(with_collector))
        alone = play(_node(tmp_path / "alone", library), None, CHECKS // 2, chance, _STATES)
        result.tells(alone=_said(alone), load=round(os.getloadavg()[0], 1))
        for tally in (with_collector, alone):
            assert tally.wrong == []
        assert not with_collector.unknown_by.keys() & {"person", "program", "nagios"}


def _node(directory: Path, library: Path) -> Node:
    directory.mkdir()
    return Node(directory, FakeDriver(directory / "driver", library, gpus=GPUS), GPUS)


def _said(tally: Tally) -> dict[str, object]:
    return asdict(tally)
