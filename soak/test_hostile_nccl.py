"""Ten thousand hostile answers of NCCL's RAS, lines of its Inspector, and dumps of PyTorch's Flight Recorder."""

import copy
import json
import os
import pickle
import pickletools
import random
import resource
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.nccl import flight_recorder, inspector, ras_status
from collector.nccl.awaited_rank import awaited_ranks
from collector.nccl.ras_verdict import verdict
from collector.nccl.unreadable import UnreadableError
from soak.results import recorded
from tests.collector.nccl.inspector_lines import line
from tests.collector.nccl.statuses import communicator, missing, rank, status

pytestmark = pytest.mark.timeout(7200)

TIMES = int(os.environ.get("SOAK_BODIES") or 10_000)
MOST_MIB = 256
DUMPS = Path(__file__).parent.parent / "tests/fixtures/flight_recorder"
_ANSWER = status(communicator([rank(0, 1), rank(1, 2)], [missing(2)])).encode()
_OPCODES = [it.code.encode("latin-1") for it in pickletools.opcodes]
_JUNK: tuple[Any, ...] = (
    *(None, True, -1, 2**63, 1e308, float("nan"), "", "\x1b[2J", "x" * 10_000),
    *([], {}, [[]] * 1000, {"a": {"b": [None]}}),
)


class Trap:
    """What Python's own unpickler would run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def damaged(dice: random.Random, content: bytes) -> bytes:
    """With some bytes replaced, dropped or added."""
    found = bytearray(content)
    for _ in range(dice.randint(1, 20)):
        at = dice.randrange(len(found) + 1)
        found[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(4))
    return bytes(found)


def misplaced(dice: random.Random, content: bytes) -> bytes:
    """JSON with another value at some place."""
    value = copy.deepcopy(json.loads(content))
    place = value
    while isinstance(place, dict | list) and place:
        key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or dice.random() < 0.3:
            place[key] = dice.choice(_JUNK)
            break
        place = place[key]
    return json.dumps(value).encode()


def trapped(dice: random.Random, marker: Path) -> bytes:
    """A pickle that would make a folder, with opcodes in no order, or both."""
    trap = pickle.dumps({"entries": [Trap(marker)]}, dice.randint(0, pickle.HIGHEST_PROTOCOL))
    noise = b"".join(dice.choices(_OPCODES, k=dice.randint(1, 40)))
    return dice.choice((trap, b"\x80\x02" + noise + b".", b"\x80\x02" + noise + trap[2:]))


def read_answer(content: bytes) -> None:
    before, after = ras_status.parse(_ANSWER), ras_status.parse(content)
    verdict(before, after, "job 7", lambda _: None, frozenset({"10.0.0.1"}))


def read_line(content: bytes) -> None:
    found = inspector.parse(content, 0)
    awaited_ranks([] if found is None else [found])


def read_dump(content: bytes) -> None:
    dump = flight_recorder.parse(content)
    for one in flight_recorder.collectives({0: dump}, "job 7"):
        json.dumps(one.to_json())


def test_ten_thousand_hostile_answers_lines_and_dumps_run_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    print(f"\nSOAK_SEED={seed}")  # noqa: T201 - the seed is what a failure is repeated with
    dice, marker = random.Random(seed), tmp_path / "ran"
    dumps = [(DUMPS / f"comm_lib_trace_rank_{n}").read_bytes() for n in range(4)]
    written = line(0, 1, 2)
    makes: dict[str, tuple[Callable[[bytes], None], Callable[[], bytes]]] = {
        "answers": (
            read_answer,
            lambda: dice.choice((damaged, misplaced))(dice, _ANSWER),
        ),
        "lines": (read_line, lambda: dice.choice((damaged, misplaced))(dice, written)),
        "dumps": (
            read_dump,
            lambda: (
                damaged(dice, dice.choice(dumps)) if dice.random() < 0.5 else trapped(dice, marker)
            ),
        ),
    }
    with recorded("hostile_nccl", seed=seed) as result:
        before = _peak_mib()
        for name, (read, make) in makes.items():
            refused = 0
            for _ in range(TIMES):
                try:
                    read(make())
                except UnreadableError:
                    refused += 1
            result.tells(**{name: TIMES, f"{name}_refused": refused})
            assert not marker.exists()
        result.tells(more_mib=round(_peak_mib() - before))
        assert _peak_mib() - before < MOST_MIB


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
