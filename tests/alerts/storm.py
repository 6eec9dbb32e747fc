"""Many incidents that open and close towards receivers of the worst temper, and what must hold then."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import Signal
from gpuvigil.model import RecordKind, Severity
from tests.polling import wait_until
from tests.receiver import OK, RESET, SILENT, Answer, Received, Receiver, too_many

from .process import AlertsProcess
from .test_service import Story

# What a receiver may do to a post: also take it and say that it did not, and talk nonsense.
TEMPERS: tuple[Answer, ...] = (
    *(OK,) * 10,
    too_many(1),
    too_many(0),
    Answer(429, {"Retry-After": "soon"}),
    Answer(500),
    Answer(503, {"Retry-After": "1"}, b"<html>busy</html>"),
    SILENT,
    RESET,
    Answer(200, after_seconds=0.2),
    Answer(404, body=b"it moved"),
)


class Hostile(Receiver):
    """Answers each post by a seeded die, until it is `calm`."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._die = random.Random(seed)
        self.calm = False

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        self.answer(OK if self.calm else self._die.choice(TEMPERS))
        return super().take(path, headers, body)


@dataclass
class Storm:
    """What happens to `count` incidents: each opens, may change, and closes, in any interleaving."""

    hub: Hub
    seed: str
    count: int
    span_seconds: float
    kills: int = 0

    def rage(self, processes: Sequence[AlertsProcess]) -> list[str]:
        """Let it all happen, killing one process after the other; the incidents' ids."""
        die = random.Random(self.seed)
        stories = [Story(self.hub) for _ in range(self.count)]
        steps = sorted(
            (moment, number, signal)
            for number in range(self.count)
            for moment, signal in _life(die, self.span_seconds)
        )
        killed = sorted(die.uniform(0.0, self.span_seconds) for _ in range(self.kills))
        began = time.monotonic()
        for moment, number, signal in steps:
            while killed and killed[0] <= moment:
                process = processes[die.randrange(len(processes))]
                process.kill()
                process.start()
                killed.pop(0)
            time.sleep(max(began + moment - time.monotonic(), 0.0))
            stories[number].tell(signal, severity=list(Severity)[number % 2])
        return [story.id for story in stories]

    def settle(self, receivers: Sequence[Hostile], timeout_seconds: float) -> None:
        """Wait until nothing is on its way any more."""
        for receiver in receivers:
            receiver.calm = True
        wait_until("nothing is due but reminders", self._is_quiet, timeout_seconds)

    def _is_quiet(self) -> bool:
        due = self.hub.records(RecordKind.NOTICE, states=("due",))
        waiting = [one for one in due if not one.body["repeat"]]
        if not waiting:
            # One that a killed process holds is nobody's notice yet.
            steps = self.hub.records(RecordKind.TRANSITION, limit=100_000)
            waiting = [one for one in steps if one.due_at is not None]
        # Thousands that wait are not asked for again at once: the hub has to answer others, too.
        time.sleep(min(len(waiting) / 1000, 2.0))
        return not waiting


def check(receiver: Receiver, incidents: Sequence[str], kills: int) -> None:
    """Every final state arrived, in order, and none twice unless a process was killed at it."""
    heard: dict[str, list[Received]] = defaultdict(list)
    for got in receiver.received():
        incident = got.headers["Idempotency-Key"].partition(":")[0]
        if not incident.startswith("self-"):  # what gpuvigil has to say about its other channels
            heard[incident].append(got)
    assert set(heard) <= set(incidents)
    for incident in incidents:
        seen = heard[incident]
        orders = [_order(got) for got in seen]
        assert orders == sorted(orders), f"{incident}: {orders}"
        told = [got for got in seen if got.accepted]
        if any(_perhaps_told(got) for got in seen):
            assert told, f"{incident}: perhaps told and never taken"
            assert told[-1].payload["status"] == "resolved", f"{incident}: left active"
    taken = Counter(got.headers["Idempotency-Key"] for got in receiver.accepted())
    twice = sum(count - 1 for count in taken.values())
    assert twice <= kills, f"{twice} twice after {kills} kills"


def _perhaps_told(got: Received) -> bool:
    """Whether the sender cannot know that it was not taken."""
    return got.answer.reset or got.answer.silent or not 400 <= got.answer.status < 500


def _order(got: Received) -> tuple[int, int]:
    number, _, repeat = got.headers["Idempotency-Key"].rpartition(":")[2].partition(".")
    return int(number), int(repeat or 0)


def _life(die: random.Random, span: float) -> list[tuple[float, Signal]]:
    """One incident's steps, each with its moment."""
    middle = [Signal.CHANGED] * die.randrange(3)
    moments = sorted(die.uniform(0.0, span) for _ in range(len(middle) + 2))
    return list(zip(moments, [Signal.CONFIRMED, *middle, Signal.CLEARED], strict=True))
