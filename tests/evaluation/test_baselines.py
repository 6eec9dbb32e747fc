"""Others' rules: codes stand until a cure, silence is told after its time, and each rule has a source."""

from collections.abc import Iterable
from datetime import timedelta

import pytest

from analyzer.window.window import Window
from evaluation.baselines import SETS
from evaluation.baselines.rules import RULES
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Event, EventKind, Finding
from tests.evaluation.made import NOON, event, gpu, node

LATE = NOON + timedelta(hours=9)


def found(name: str, *events: Event, silent: timedelta = timedelta()) -> list[Finding]:
    window = Window(
        now=LATE,
        settings=AnalyzerSettings(),
        events={node(1).key: events},
        last_seen={node(1).key: LATE - silent},
        listening_since=NOON,
    )
    every: Iterable[list[Finding]] = (it.find(window) for it in RULES[name])
    return [finding for them in every for finding in them]


XID = event(EventKind.XID, gpu(1), NOON, xid=79)


@pytest.mark.parametrize("name", ["DCGM health", "gpud", "nvidia_gpu_exporter"])
def test_an_xid_stands_until_it_is_cured(name: str) -> None:
    assert [it.subject for it in found(name, XID)] == [gpu(1)]
    later, before = NOON + timedelta(seconds=1), NOON - timedelta(seconds=1)
    for kind, subject in ((EventKind.GPU_RESET, gpu(1)), (EventKind.BOOT, node(1))):
        assert found(name, XID, event(kind, subject, later)) == []
        assert found(name, event(kind, subject, before), XID)
    assert found(name, XID, event(EventKind.GPU_RESET, gpu(1, 1), later))


@pytest.mark.parametrize(("seconds", "told"), [(300, False), (301, True)])
def test_a_silent_node_is_told_after_five_minutes(seconds: int, told: bool) -> None:
    down = found("Prometheus", silent=timedelta(seconds=seconds))
    assert [it.subject for it in down] == ([node(1)] if told else [])


def test_each_rule_says_where_it_comes_from() -> None:
    assert [it.name for them in SETS.values() for it in them if not it.source] == []
