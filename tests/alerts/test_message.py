"""A message says what, where, since when, who is hit, on what evidence, and what to do now."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.channels.shared_parts import links
from alerts.channels.webhook import payload
from alerts.decisions.decide import decide
from alerts.messages.message import Message, clean, listed, message
from alerts.messages.self_monitoring import analyzer_trouble
from alerts.messages.self_monitoring import opened as trouble_opened
from alerts.routing.notice import Kind, Notice, Verdict
from gpuvigil.model import SWITCH_DEVICE, CoveredBy, Evidence, Impact, Subject, Transition

from .examples import CHAT, GPU, NOON, REAL, SETTINGS, changed, opened, resolved, seconds
from .test_self_monitoring import a_pulse

URL = "https://gpus.example.org/"
FOUR_MINUTES = NOON + seconds(240)


def noticed(transition: Transition, kind: Kind) -> Notice:
    return replace(decide(transition, [CHAT], [], NOON, SETTINGS)[-1], kind=kind)


def told(**changes: Any) -> Message:
    return message(noticed(opened(**changes), Kind.FIRED), FOUR_MINUTES, URL)


def test_somebody_who_is_woken_reads_what_matters_in_order() -> None:
    assert told(subject=REAL, label="n1 GPU 5").text.split("\n") == [
        "GPU fell off the bus: n1 GPU 5",
        "Where: n1 GPU 5 (GPU-1), cluster lab",
        "Since: 12:00:00 UTC on 20 Nov (4 min ago)",
        "Impact: 1 GPU blocked; allocated to job 1234 (alice)",
        "Evidence: Xid: 79 (normal: none)",
        "Do now: Drain the node and reboot it.",
        "Page: https://gpus.example.org/gpu?cluster=lab&node=n1&gpu=GPU-1"
        "&from=2026-11-20T11%3A30%3A00Z&to=2026-11-20T12%3A34%3A00Z",
        "Acknowledge: https://gpus.example.org/incidents?incident=i-1",
    ]


def test_a_simulated_incident_says_so_first() -> None:
    assert told().summary == "[simulated] GPU fell off the bus: sim-003 GPU 5"


def test_a_title_that_names_the_place_is_not_told_it_twice() -> None:
    assert told(title="sim-003 GPU 5 is lost").summary == "[simulated] sim-003 GPU 5 is lost"


def test_the_end_says_how_long_it_lasted_and_asks_for_nothing() -> None:
    over = resolved(at=FOUR_MINUTES, subject=REAL, label="n1 GPU 5")
    said = message(noticed(over, Kind.RESOLVED), FOUR_MINUTES + seconds(60), URL)
    assert said.summary == "Resolved after 4 min: GPU fell off the bus: n1 GPU 5"
    assert said.since == "12:00:00 UTC on 20 Nov until 12:04:00 UTC on 20 Nov (4 min)"
    assert said.action.startswith("Nothing now. Should it come back: Drain the node")
    assert said.impact.startswith("until then: ")
    assert said.ends_at == FOUR_MINUTES
    assert "to=2026-11-20T12%3A34%3A00Z" in said.link


def test_an_end_that_only_a_larger_fault_covers_is_not_called_over() -> None:
    covered = CoveredBy(fingerprint="f1", what="n1: Node stopped reporting")
    over = replace(resolved(at=FOUR_MINUTES, subject=REAL, label="n1 GPU 5"), cause=covered)
    said = message(noticed(over, Kind.RESOLVED), FOUR_MINUTES, URL)
    assert said.summary == "Covered by another fault after 4 min: GPU fell off the bus: n1 GPU 5"
    assert said.action == "Follow the incident that covers it: n1: Node stopped reporting."
    assert not said.firing


def test_an_update_and_a_reminder_say_what_they_are() -> None:
    update = noticed(changed(subject=REAL, label="n1 GPU 5"), Kind.UPDATED)
    assert message(update, FOUR_MINUTES, URL).summary.startswith("Update: GPU fell off")
    reminder = replace(update, verdict=Verdict.STILL_STANDING)
    later = NOON + timedelta(hours=4)
    assert message(reminder, later, URL).summary.startswith("Still there after 4 h: GPU fell off")


def test_what_comes_back_or_gets_worse_says_so() -> None:
    update = noticed(changed(subject=REAL, label="n1 GPU 5"), Kind.UPDATED)
    said = [
        message(replace(update, verdict=verdict), FOUR_MINUTES, URL).summary
        for verdict in (Verdict.RETURNED, Verdict.WORSE, Verdict.GREW, Verdict.ESCALATED)
    ]
    title = "GPU fell off the bus: n1 GPU 5"
    assert said == [
        f"Back again: {title}",
        f"Now critical: {title}",
        f"Now larger: {title}",
        f"Nobody has taken it: {title}",
    ]


def test_what_has_another_title_says_how_it_was_told_before() -> None:
    update = noticed(changed(subject=REAL), Kind.UPDATED)
    for before, begins in (("Xid 13", "sent before as: Xid 13; Xid: 79"), ("", "Xid: 79")):
        assert message(update, FOUR_MINUTES, URL, previous_title=before).evidence.startswith(begins)
    same = message(update, FOUR_MINUTES, URL, previous_title="GPU fell off the bus")
    assert same.evidence.startswith("Xid: 79")


def test_ten_members_are_listed_and_the_rest_counted() -> None:
    members = tuple(f"lab/n{number}" for number in range(256))
    where = told(subject=REAL, members=members).where
    assert "n9" in where
    assert "n10" not in where
    assert where.endswith("and 246 more")


def test_the_gpus_of_a_node_are_not_listed_beside_it() -> None:
    node = REAL.of_node()
    members = (node.key, REAL.key)
    assert told(subject=node, members=members, label="n1").where == "n1, cluster lab"
    said = told(subject=node, members=members, label="n1", gpus="8 GPUs (GPU 0-7)").where
    assert said == "n1, cluster lab: 8 GPUs (GPU 0-7)"


def test_a_port_is_named_once() -> None:
    port = Subject(cluster="lab", node="n1", device="mlx5_1", port="1")
    assert told(subject=port, label="n1 mlx5_1").where == "n1 mlx5_1, cluster lab"


def test_peers_and_hidden_symptoms_are_evidence() -> None:
    evidence = (Evidence(name="rate", value="3 Gbit/s", limit="80", peers="91 Gbit/s"),)
    said = told(evidence=evidence, covers=("8 GPUs unknown",)).evidence
    assert said == "rate: 3 Gbit/s (normal: 80, peers 91 Gbit/s); also explains: 8 GPUs unknown"


def test_what_is_hidden_in_several_places_is_said_once() -> None:
    covers = (
        "n1 GPU 0: GPU does not answer",
        "n1 GPU 1: GPU does not answer",
        "n1 GPU 2: Xid 48: x",
    )
    said = told(evidence=(), covers=covers).evidence
    assert said == "also explains: 2 x GPU does not answer, n1 GPU 2: Xid 48: x"


def test_details_are_for_the_page() -> None:
    short = Evidence(name="Xid 79", value="reported at noon")
    long = Evidence(name="called by the driver", value="ROBUST_CHANNEL", detail=True)
    assert told(evidence=(short, long)).evidence == "Xid 79: reported at noon"
    assert told(evidence=(long,)).evidence == "see the link"


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (Impact(text="8 GPUs of job 7 wait"), "8 GPUs of job 7 wait"),
        (Impact(), "no GPU is blocked"),
        (Impact(gpus=8), "8 GPUs blocked; not allocated"),
    ],
)
def test_impact_is_said_in_words(impact: Impact, text: str) -> None:
    assert told(impact=impact).impact == text


@given(text=st.text())
def test_what_strangers_wrote_becomes_one_bounded_printable_line(text: str) -> None:
    line = clean(text, 50)
    assert len(line) <= 50
    assert line.isprintable()


def test_a_list_is_cut() -> None:
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert listed(["a", "b"], 2) == "a, b"


@pytest.mark.medium
def test_a_huge_incident_makes_a_small_payload() -> None:
    long = "é" * 5000
    said = told(
        title=long,
        label=long,
        action=long,
        source=long,
        members=tuple(f"{GPU.key}{long}{n}" for n in range(1000)),
        covers=(long,) * 1000,
        evidence=tuple(Evidence(name=long, value=long) for _ in range(1000)),
        impact=Impact(gpus=1000, holders=(long,) * 1000, users=(long,) * 1000),
    )
    value = json.dumps(payload(said, "webhook", URL), ensure_ascii=False)
    assert len(value.encode()) < 32_768


def test_many_places_are_counted_by_node_and_not_read_out() -> None:
    members = tuple(f"lab/n{n // 8:02d}/gpu/GPU-{n:032d}" for n in range(512))
    leaf = Subject(cluster="lab", node="leaf-3")
    said = told(subject=leaf, label="leaf-3", title="Switch leaf-3 failed", members=members)
    assert said.where == (
        "leaf-3, cluster lab; also 512 GPUs on 64 nodes: n00 (8), n01 (8), n02 (8), n03 (8),"
        " n04 (8), n05 (8), n06 (8), n07 (8), n08 (8), n09 (8) and 54 more"
    )
    nodes = told(subject=leaf, label="leaf-3", members=tuple(f"lab/n{n:02d}" for n in range(12)))
    assert nodes.where.startswith("leaf-3, cluster lab; also 12 nodes: n00, n01,")
    ports = tuple(f"lab/n{n:02d}/port/mlx5_0/1" for n in range(12))
    first = Subject.parse(ports[0])
    named = told(subject=first, fault="switch_down", label="n00, n01 and 10 more", members=ports)
    assert named.where == "n00, n01 and 10 more, cluster lab"
    switch = Subject(cluster="lab", node="leaf-3", device=SWITCH_DEVICE, port="0")
    lost = told(subject=switch, fault="switch_down", label="switch leaf-3", members=ports)
    assert lost.where.startswith("switch leaf-3, cluster lab; also 12 nodes: n00, n01,")
    assert lost.link == f"{URL}network?link=lab%2Fleaf-3%2Fport%2Fswitch%2F0"
    whole = told(subject=GPU, label=f"cluster {GPU.cluster}", members=members)
    assert whole.where.startswith(f"cluster {GPU.cluster}: 512 GPUs on 64 nodes: n00 (8),")


def test_what_gpuvigil_says_of_itself_leads_to_the_pipeline_and_says_so() -> None:
    silent = analyzer_trouble(a_pulse(NOON - seconds(300)), NOON)
    assert silent is not None
    step = trouble_opened(silent, None, NOON)
    assert step is not None
    (label, address), *_ = links(message(noticed(step, Kind.FIRED), FOUR_MINUTES, URL))
    assert (label, address.partition("?")[0]) == ("Open the pipeline", f"{URL}pipeline")
