"""Open incidents about how GPUs are used are one row each on the overview, in the list and at a handover."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dashboard.data.attention import attention
from dashboard.data.views import fleet_view
from dashboard.handover import page as handover
from dashboard.handover.summary import Records, shift
from dashboard.incidents import drawing
from dashboard.incidents.filters import Filters
from dashboard.incidents.listing import MOST_SHOWN, listing, open_entry
from dashboard.layout.panels import attention_items
from dashboard.layout.tree import Node
from dashboard.model.fold import LEAST, folds, rows
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Impact, Incident, OutOfService, Severity
from gpuvigil.web import page_links

from .scene import NOON, busy_fleet, gpu, incident, node
from .test_incidents_page import texts

FAULT = "gpu_idle_held"
ACTION = "Ask alice whether the GPU is still needed."


def idle(number: int, job: str = "job 4711", user: str = "alice", **values: Any) -> Incident:
    of = node(f"n{number}", "lab")
    gpus = values.pop("gpus", 1)
    one = incident(FAULT, gpu(0, of), Severity.INFO, action=ACTION, **values)
    users, holders = (tuple(filter(None, [it])) for it in (user, job))
    impact = Impact(gpus=gpus, users=users, holders=holders, text=f"{gpus} GPU allocated to {job}")
    return replace(one, title="GPU is allocated but idle", impact=impact)


LOST = incident("gpu_lost", gpu(0, node("n99", "lab")), Severity.CRITICAL)
TWENTY = [idle(number) for number in range(20)]


@pytest.mark.parametrize(
    ("of", "where", "shares"),
    [
        (TWENTY, "20 GPUs of job 4711 of alice", "job 4711"),
        (
            [idle(n, f"job {n}") for n in range(5)],
            "5 GPUs of alice",
            "job 0, job 1, job 2 and 2 more",
        ),
        (
            [
                *(idle(n, f"job {n}", "bob") for n in range(4)),
                idle(4, "job 4", "eve", gpus=8),
                idle(5, "job 5", "kim"),
                idle(6, "job 6", "lee"),
            ],
            "14 GPUs of 4 users",
            "8 of eve, 4 of bob, 1 of kim and 1 more",
        ),
        ([*TWENTY[:3], idle(3, "pid 7", "")], "4 GPUs of 1 user and others", "job 4711, pid 7"),
        ([idle(n, "", "") for n in range(3)], "3 GPUs", ""),
        ([idle(n, "pod a/b", "") for n in range(3)], "3 GPUs of pod a/b", "pod a/b"),
    ],
)
def test_a_row_says_whose_gpus_they_are(of: list[Incident], where: str, shares: str) -> None:
    (fold,) = {one.id: one for one in folds(of).values()}.values()
    assert (fold.where, fold.shares) == (where, shares)
    assert [one.id for one in rows(of, folds(of))] == [of[0].id]


def test_what_fails_what_is_rare_and_what_somebody_took_stays_by_itself() -> None:
    failing = [incident("gpu_lost", gpu(n), Severity.CRITICAL) for n in range(5)]
    assert folds([*failing, *TWENTY[: LEAST - 1]]) == {}
    taken = [replace(one, state="acknowledged", acknowledged_by="ann") for one in TWENTY[:2]]
    held = replace(TWENTY[2], out_of_service=OutOfService("DRAIN", "drained"))
    assert set(folds([*taken, held, *TWENTY[3:]])) == {one.id for one in TWENTY[3:]}


def test_the_overview_has_one_row_for_twenty_idle_gpus_which_leads_to_the_list() -> None:
    facts = replace(busy_fleet([node("n1", "lab")]), incidents=(*TWENTY, LOST))
    view = fleet_view(facts, AnalyzerSettings(), NOON)
    lost, row = attention_items(view, {})
    assert (lost["title"], lost["count"]) == ("gpu_lost", 1)
    assert (row["count"], row["label"]) == (20, "20 GPUs of job 4711 of alice")
    assert row["page"] == row["place"] == page_links.open_incidents_of(FAULT)
    assert row["action"] == ACTION
    said = "".join(text for text, _ in row["impact"])
    assert said == "job 4711 · for up to 60\u00a0s"
    assert ("job 4711", "/job?cluster=lab&job=4711") in row["impact"]
    others = (replace(TWENTY[0], action="Ask."), *TWENTY[1:])
    mixed = fleet_view(replace(facts, incidents=others), AnalyzerSettings(), NOON)
    assert [row["action"] for row in attention_items(mixed, {})] == [""]


def entries(of: list[Incident], asked: Filters) -> list[Node]:
    active = [open_entry(item) for item in attention(of, (), NOON)]
    return drawing.entries(listing(active, (), asked), NOON, cut=False)


def test_the_list_has_one_row_for_them_until_somebody_looks_for_them() -> None:
    old = replace(TWENTY[7], since=NOON - timedelta(hours=3))
    every = [LOST, *TWENTY[:7], old, *TWENTY[8:]]
    open_, *_ = entries(every, Filters())
    assert "Open 21 shown" in texts(open_)
    assert texts(open_).count("idle") == 1
    assert "20 GPUs of job 4711 of alice" in texts(open_)
    assert "for up to 3 h" in texts(open_)
    link = page_links.open_incidents_of(FAULT)
    assert link in str(open_)
    for asked in (Filters(fault=FAULT), Filters(q="alice"), Filters(node="n3")):
        (listed, *_) = entries(every, asked)
        assert texts(listed).count("GPU is allocated") == (1 if asked.node else 20)


def test_however_many_they_are_all_are_counted() -> None:
    many = [idle(number) for number in range(MOST_SHOWN + 50)]
    lost = [incident("gpu_lost", gpu(0, node(f"x{n}", "lab")), Severity.INFO) for n in range(210)]
    open_, more, *_ = entries([*many, *lost], Filters())
    rest = MOST_SHOWN + 50 + 210 - int(texts(open_).split()[1].replace(",", ""))
    assert f"and {rest:,} more open" in texts(more)


def test_a_handover_names_them_once_and_those_that_are_over_one_by_one() -> None:
    over = [
        replace(one, id=f"over-{one.id}", state="resolved", resolved_at=NOON) for one in TWENTY[:3]
    ]
    found = shift(Records(incidents=(*TWENTY, LOST, *over)), NOON)
    _, open_, _, ended, _ = handover.body(found, {})
    assert texts(open_).startswith("Still open 21")
    assert texts(open_).count("idle") == 1
    assert "20 GPUs of job 4711 of alice" in texts(open_)
    assert "more" not in texts(open_)
    assert texts(ended).count("idle") == 3
