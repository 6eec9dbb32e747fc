"""An incident can be explained, with what speaks against it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from analyzer.analysis import Analysis
from analyzer.explain_command import explained, main
from gpuvigil.model import (
    RESERVED_CLUSTERS,
    Incident,
    Opinion,
    OutOfService,
    RecordKind,
    Severity,
    Transition,
)
from tests.servers import QuickHub

from .scene import SETTINGS, gpu, healthy, incident, node
from .test_analysis import reading

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def told() -> tuple[Incident, list[Transition]]:
    """A GPU whose PCIe link is narrow, as two passes find it."""
    analysis = Analysis(SETTINGS)
    narrow = healthy().changed(gpu(), {"pcie_width": 8})
    for _ in range(2):
        analysis.run_pass(reading(narrow))
    records = [record for unit in analysis.to_write() for record in unit]
    (found,) = [Incident.from_record(r) for r in records if r.kind is RecordKind.INCIDENT]
    steps = [Transition.from_record(r) for r in records if r.kind is RecordKind.TRANSITION]
    return found, steps


def test_rule_numbers_steps_and_action_are_told() -> None:
    lines = list(explained(*told(), []))
    assert lines[0] == "node-1 GPU 0: GPU's PCIe link has lost lanes"
    assert "condition: pcie_narrow" in lines
    assert "confidence: high, reported by the device, the driver or the kernel" in lines
    assert any(line.startswith("rule: gpu_pcie: ") for line in lines)
    assert "  PCIe width: 8 lanes (normal: 16)" in lines
    assert any("suspect to open, seen a second time" in line for line in lines)
    against = lines.index("doubts:")
    assert lines[against + 1] == "  none"
    assert lines[-1].startswith("first action: Drain the node; reseat")


def test_a_change_is_told_with_the_old_and_the_new_value() -> None:
    found, steps = told()
    whole = replace(found, members=(*found.members, gpu(1).key), title="Worse")
    changed = replace(
        steps[-1],
        number=steps[-1].number + 1,
        signal="changed",
        from_state="open",
        reason="title, members changed",
        snapshot=whole.to_record().to_json(),
    )
    lines = list(explained(whole, [changed, *steps], []))
    (line,) = [line for line in lines if "open to open" in line]
    assert line.endswith(f"title: {found.title} → Worse; places: 1 → 2")


def test_doubts_are_told() -> None:
    found, steps = told()
    others = [
        replace(incident("gpu_pcie", gpu(number)), since=found.since + MINUTE, id=str(number))
        for number in (2, 3)
    ]
    before = [
        replace(incident("gpu_lost", gpu()), since=found.since - DAY, id="a"),
        replace(incident("driver_silent", node()), since=found.since - 2 * DAY, id="b"),
    ]
    late = replace(found, late=True, severity=Severity.INFO)
    lines = list(explained(late, steps, [*others, *before, found]))
    assert "  all its data arrived late, from a spool" in lines
    assert "  it is less severe than this fault usually is (warning)" in lines
    assert any("2 other nodes have the same fault within 5 min" in line for line in lines)
    assert "incidents in the 30 days before: 1 on the same part, 2 on its node" in lines


def test_what_speaks_against_the_rule_is_told() -> None:
    found, steps = told()
    ours = replace(
        found,
        source="ours: three in half an hour",
        own_limit=True,
        out_of_service=OutOfService("DRAIN", "drained: fan [ada@now]"),
    )
    brief = replace(found, id="b", since=found.since - DAY, resolved_at=found.since - DAY + MINUTE)
    long = replace(brief, id="l", resolved_at=found.since)
    said = [
        Opinion(
            id=f"{by} {useful}",
            incident="i",
            fault=found.fault,
            subject=found.subject,
            by=by,
            useful=useful,
            at=found.since,
        )
        for by, useful in (("ada", False), ("bob", True), ("eve", False))
    ]
    other = replace(said[0], fault="gpu_lost")
    lines = list(explained(ours, steps, [brief, long, found], [*said, other]))
    assert "no alerts while it is out of service: drained: fan [ada@now]" in lines
    assert "  its limit is gpuvigil's own, not a vendor's: ours: three in half an hour" in lines
    assert "  2 of 3 messages about gpu_pcie were marked as noise" in lines
    assert "  1 of 2 earlier ones on the same part ended within 10 min" in lines


@pytest.mark.parametrize("cluster", sorted(RESERVED_CLUSTERS))
def test_what_is_played_says_nothing_against_what_is_real(cluster: str) -> None:
    found, steps = told()
    played = replace(
        incident("gpu_pcie", gpu(2, cluster=cluster)), since=found.since + MINUTE, id="played"
    )
    lines = list(explained(found, steps, [played, found]))
    assert lines == list(explained(found, steps, [found]))


@pytest.mark.server
def test_the_command_explains_what_the_hub_has_and_says_what_it_has_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, steps = told()
    with QuickHub(tmp_path) as hub:
        hub.hub().write_records([found.to_record(), *(step.to_record() for step in steps)])
        config = tmp_path / "explain.toml"
        config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n',
            encoding="utf-8",
        )
        assert main([found.id, "--config", str(config)]) == 0
        assert "condition: pcie_narrow" in capsys.readouterr().out
        assert main(["nobody", "--config", str(config)]) == 2
        assert "the hub has no incident 'nobody'" in capsys.readouterr().err


@pytest.mark.server
def test_what_was_before_an_old_incident_is_told_however_long_ago_that_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, steps = told()
    old = replace(found, since=found.since - 40 * DAY)
    earlier = [
        replace(incident("gpu_lost", gpu()), since=old.since - days * DAY, id=f"{days}")
        for days in (1, 3, 29, 31)
    ]
    later = replace(incident("gpu_lost", gpu()), since=old.since + DAY, id="later")
    with QuickHub(tmp_path) as hub:
        hub.hub().write_records(
            [one.to_record() for one in (old, *earlier, later)] + [one.to_record() for one in steps]
        )
        config = tmp_path / "explain.toml"
        config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n',
            encoding="utf-8",
        )

        assert main([old.id, "--config", str(config)]) == 0

    assert (
        "incidents in the 30 days before: 3 on the same part, 3 on its node"
        in capsys.readouterr().out
    )
