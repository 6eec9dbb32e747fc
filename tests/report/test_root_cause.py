"""A part's page for its maker: what it says, whom it does not name, and that it stays small."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Act,
    Event,
    EventKind,
    Evidence,
    GpuIdentity,
    Impact,
    Incident,
    Inventory,
    Job,
    NodeAction,
    PortIdentity,
    Record,
    RecordKind,
    Rma,
    RmaState,
    Setup,
    Severity,
    Subject,
    Transition,
    fingerprint,
)
from report.report_command import main
from report.root_cause.page import MOST_INCIDENTS, MOST_LINES, Page, of_node, versions
from report.root_cause.page_formats import html, json_text, markdown
from report.root_cause.page_inputs import AROUND, group_inputs, without_names
from tests.accounting.people import scene
from tests.hub.in_process import HubThread

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
START = NOW - timedelta(days=30)
NODE = Subject(cluster="alpha", node="gpu-7")
GPU = replace(NODE, gpu="GPU-aa")
LINE = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=ada_train.py, GPU has fallen off the bus."


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def inventory(driver: str = "570.86") -> Inventory:
    gpu = GpuIdentity(
        uuid="GPU-aa",
        index=3,
        pci_address="0000:9b:00.0",
        model="H100",
        serial="165042",
        vbios="96.00.5E",
        inforom="G520.0200",
    )
    other = replace(gpu, uuid="GPU-bb", index=4, serial=None, pci_address="0000:9d:00.0")
    port = PortIdentity(
        device="mlx5_0", port="1", kind="infiniband", role="fabric", firmware="28.39"
    )
    return Inventory(
        subject=NODE,
        at=NOW,
        boot="b",
        tick_seconds=10.0,
        version="1",
        gpus=(gpu, other),
        ports=(port,),
        kernel="6.8.0",
        driver=driver,
    )


def incident(number: int, since: datetime, until: datetime | None, **changed: object) -> Incident:
    values: dict[str, object] = {
        "id": f"lost-{number}",
        "fingerprint": fingerprint("gpu_lost", GPU),
        "fault": "gpu_lost",
        "subject": GPU,
        "severity": Severity.CRITICAL,
        "state": "open" if until is None else "resolved",
        "title": "GPU fell off the bus",
        "since": since,
        "updated_at": until or since,
        "resolved_at": until,
        "impact": Impact(gpus=2, holders=("job 17",), users=("ada",)),
        "evidence": (Evidence(name="width", value="x1", limit="x16", peers="x16, as ada's"),),
        "source": "Xid table",
        "label": "gpu-7 GPU 3",
        "serial": "165042",
        "slot": "0000:9b:00.0",
        "xid": 79,
    }
    return Incident(**{**values, **changed})  # type: ignore[arg-type]


def job() -> Job:
    return Job(
        told_by=Subject(cluster="alpha", node="ctl"),
        number="17",
        state="NODE_FAIL",
        submitted_at=day(19),
        started_at=day(20) - timedelta(hours=5),
        ended_at=day(20) + timedelta(minutes=1),
        seen_at=day(21),
        user="ada",
        account="vision",
        name="ada-secret",
        nodes=("gpu-7",),
        gpus=2,
    )


def records() -> list[Record]:
    """A GPU that was lost twice: the first time reset, then drained and sent back."""
    first = incident(1, day(10), day(10) + timedelta(hours=1))
    second = incident(2, day(20), None)
    step = Transition(
        incident="lost-2",
        number=1,
        from_state="open",
        to_state="acknowledged",
        signal="acknowledged",
        at=day(20) + timedelta(minutes=5),
        reason="acknowledged by ada: Grete knows the case",
        subject=GPU,
        snapshot={},
    )
    before = replace(inventory(driver="560.28"), at=day(-20))
    old = Setup.of(before)
    return [
        inventory().to_record(),
        old.to_record(),
        Setup.of(replace(inventory(), at=day(5)), old).to_record(),
        first.to_record(),
        second.to_record(),
        step.to_record(),
        job().to_record(),
        *(
            one.to_record()
            for one in (
                Event(kind=EventKind.XID, subject=GPU, at=day(20), id="e1", xid=79, message=LINE),
                Event(kind=EventKind.BOOT, subject=NODE, at=day(20.5), id="e2"),
                Event(
                    kind=EventKind.XID, subject=GPU, at=day(15), id="e3", xid=31, message="apart"
                ),
            )
        ),
        Acknowledgement(
            id="a1", incident="lost-1", subject=GPU, by="ada", note="Grete reset it", at=day(10)
        ).to_record(),
        NodeAction(
            incident="lost-2", node=NODE, act=Act.DRAIN, at=day(20.1), undo="sudo -u ada true"
        ).to_record(),
        Rma(
            incident="lost-2",
            subject=GPU,
            state=RmaState.SHIPPED,
            by="ada",
            at=day(21),
            note="Grete sent it",
            serial="165042",
        ).to_record(),
        Acceptance(
            node=NODE, by="ada", note="Grete ran dcgmi", at=day(12), tested=True
        ).to_record(),
    ]


def page(found: Iterable[Record] | None = None, *, people: bool = False, about: str = "") -> Page:
    given = tuple(records() if found is None else found)
    seen = given if people else without_names(given, NOW)
    return of_node(group_inputs(NODE, seen), START, NOW, with_people=people, about=about)


SAID = (
    *("165042", "GPU-aa", "0000:9b:00.0", "H100", "96.00.5E", "570.86", "6.8.0", "28.39"),
    *("2026-10-27 12:00:00", "gpu-7 GPU 3", "x16", "GPU has fallen off the bus", "Xid 79"),
    *("took the node out of service", "Node was booted", "shipped", "Accepted after tests"),
    *("job 17, 2 GPUs", "at most 10.0 GPU-hours", "came back after", "2 GPUs blocked, 480.0"),
    "Again: 2nd time in ",
)


def plain_words(text: str) -> str:
    return text.replace("\\", "")


def test_a_page_says_what_failed_on_which_part_and_what_was_done() -> None:
    for written in (html(page()), plain_words(markdown(page()))):
        for words in SAID:
            assert words in written, words
        assert "apart" not in written  # five days from either incident


def test_names_and_what_people_wrote_are_left_out_unless_they_are_asked_for() -> None:
    for form in (html, markdown, json_text):
        without = form(page())
        for name in ("ada", "Grete", "secret", "vision"):
            assert name not in without, (form, name)
    assert "Grete reset it" in html(page(people=True))
    assert "job 17 of ada" in html(page(people=True))


def test_nobody_is_named_wherever_records_can_name_somebody() -> None:
    found = tuple(scene.records())
    seen = group_inputs(scene.NODE, without_names(found, NOW))
    for about in ("", scene.incident().id):
        made = of_node(seen, scene.NOON - timedelta(days=1), NOW, about=about)
        assert made.incidents
        for form in (html, markdown, json_text):
            assert not [one for one in scene.SECRETS if one in form(made).lower()]


def test_since_when_a_version_runs_is_told_as_far_as_it_is_known() -> None:
    found = {one.name: one for one in page().versions}
    driver, kernel = found["Driver"], found["Kernel"]
    assert (driver.value, driver.since, driver.or_before) == ("570.86", day(5), False)
    assert (kernel.value, kernel.since, kernel.or_before) == ("6.8.0", day(-20), True)
    (alone, *_) = versions((), inventory())
    assert (alone.since, alone.or_before) == (None, False)


def test_what_was_not_measured_is_said() -> None:
    said = " ".join(page().unmeasured)
    assert "Serial number of GPU 4" in said
    assert "inventory" not in said
    bare = [one for one in records() if one.kind is RecordKind.INCIDENT]
    said = " ".join(page(bare).unmeasured)
    assert "no inventory" in said
    assert "no change of them was kept" in said
    assert json.loads(json_text(page()))["page"]["gpus"][1]["serial"] is None


def test_only_incidents_that_stood_in_the_span_are_told() -> None:
    ended = [incident(n, day(-2), START + timedelta(seconds=n)) for n in (0, 1)]
    found = page(one.to_record() for one in ended)
    assert [one.id for one in found.incidents] == ["lost-1"]
    unsure = incident(3, day(20), None, state="suspect")
    assert not page([unsure.to_record()]).incidents


def test_lines_of_five_minutes_around_an_incident_are_its_own() -> None:
    ended = day(10) + timedelta(hours=1)
    lines = [
        Event(kind=EventKind.XID, subject=GPU, at=at, id=at.isoformat(), xid=79, message=LINE)
        for end, sign in ((day(10), -1), (ended, 1))
        for at in (end + sign * AROUND, end + sign * (AROUND + timedelta(seconds=1)))
    ]
    (found,) = page(
        [incident(1, day(10), ended).to_record(), *(one.to_record() for one in lines)]
    ).incidents
    assert [one.at for one in found.lines] == [day(10) - AROUND, ended + AROUND]
    assert "None of its time was kept." in markdown(page())


def test_the_page_of_an_incident_is_about_it_and_its_gpu_alone() -> None:
    found = page(about="lost-1")
    assert [one.id for one in found.incidents] == ["lost-1"]
    assert [one.serial for one in found.gpus] == ["165042"]
    assert found.about == "gpu-7 GPU 3"
    assert not found.jobs_lost


def test_the_file_stays_small_and_says_what_is_left_out() -> None:
    many = [
        incident(
            n,
            day(20) + timedelta(minutes=n),
            None,
            evidence=tuple(Evidence(name=f"n{it}", value="<" * 40) for it in range(12)),
        )
        for n in range(MOST_INCIDENTS + 1)
    ]
    lines = [
        Event(kind=EventKind.XID, subject=GPU, at=day(21), id=f"e{n}", xid=79, message="x" * 2000)
        for n in range(MOST_LINES + 1)
    ]
    given = [*(one.to_record() for one in many), *(one.to_record() for one in lines)]
    found = page([*given, inventory().to_record()])
    assert (len(found.incidents), found.more_incidents) == (MOST_INCIDENTS, 1)
    assert {one.more_lines for one in found.incidents} == {1}
    assert {one.more_lines for one in page(given[:-1]).incidents} == {0}
    written = html(found)
    assert len(written.encode()) < 300_000
    assert "<script" not in written
    assert f"The newest {MOST_INCIDENTS} are shown" in written


@pytest.mark.server
def test_the_command_writes_each_format_and_refuses_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with HubThread(tmp_path / "hub") as hub:
        client = hub.hub()
        client.write_records(records())
        config = tmp_path / "c.toml"
        config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        )
        given = ("--config", str(config))
        for name in ("p.html", "p.md", "p.json"):
            out = tmp_path / name
            assert main(["node", "gpu-7", *given, "--last", "52w", "--out", str(out)]) == 0
            assert "165042" in out.read_text()
            assert "ada" not in out.read_text()
        assert main(["incident", "lost-2", *given, "--out", str(tmp_path / "i.md")]) == 0
        assert "GPU fell off the bus" in (tmp_path / "i.md").read_text()
        capsys.readouterr()
        for verb, name in (("node", "gpu-8"), ("incident", "lost-9")):
            assert main([verb, name, *given, "-o", "md"]) == 2
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert name in said
        assert len(client.records(RecordKind.AUDIT)) == 4
        client.close()
