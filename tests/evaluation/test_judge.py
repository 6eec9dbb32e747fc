"""Verdicts over cases made by hand."""

from datetime import timedelta
from typing import Any

import pytest

from evaluation.judge.claims import Claim, Said
from evaluation.judge.fault_names import names
from evaluation.judge.matching import ECHO, Units, Verdict, false_pages, judge, units
from evaluation.judge.score import Tally, curve, score, tally
from gpuvigil.model import Severity, Subject
from simulator.fleet import Truth
from tests.evaluation.made import NOON, gpu, node

END = NOON + timedelta(hours=4)
HERE = gpu(1)
DAY = (NOON, NOON + timedelta(hours=24))


def truth(subject: Subject = HERE, fault: str = "off the bus", **more: Any) -> Truth:
    values: dict[str, Any] = {
        "id": f"{fault} {subject.key}",
        "fault": fault,
        "subject": subject,
        "start": NOON + timedelta(hours=1),
        "end": NOON + timedelta(hours=3),
        "detectable_from": NOON + timedelta(hours=1),
        "cause": "the GPU no longer answers on PCIe",
        "symptoms": (),
        "severity": Severity.CRITICAL,
        "action": "Drain the node and reboot it; if it comes back, check power, seating and heat.",
        **more,
    }
    return Truth(**values)


def claim(
    hours: float = 1.01, subject: Subject = HERE, fault: str = "gpu_lost", **more: Any
) -> Claim:
    at = NOON + timedelta(hours=hours)
    condition, xid = more.pop("condition", ""), more.pop("xid", None)
    said = Said(title="what it is called", condition=condition, xid=xid)
    values: dict[str, Any] = {
        "id": f"{fault} {subject.key} {hours}",
        "fault": fault,
        "subject": subject,
        "severity": Severity.CRITICAL,
        "action": "Drain the node and reboot it; if the GPU is lost again, check power.",
        "words": ((at, said),),
        "spans": ((at, None),),
        "pages": (at,),
        "members": (subject.key,),
        **more,
    }
    return Claim(**values)


def verdict(truths: list[Truth], one: Claim) -> Verdict:
    return judge(truths, [one])[1][0].verdict


def test_a_claim_that_names_the_fault_in_time_is_right_in_everything() -> None:
    (outcome,), (judged,) = judge([truth()], [claim()])
    assert judged.verdict is Verdict.RIGHT
    assert outcome.seconds == pytest.approx(36.0)
    assert outcome.cause
    assert outcome.place
    assert outcome.action
    assert outcome.severity
    assert outcome.incidents == 1


def test_a_fault_of_which_nobody_spoke_is_missed() -> None:
    (outcome,), judged = judge([truth()], [])
    assert (outcome.found, outcome.cause, outcome.incidents, judged) == (False, False, 0, [])


def test_a_second_incident_of_one_fault_is_counted_and_no_false_alarm() -> None:
    second = claim(1.5, fault="gpu_xid", xid=79)
    (outcome,), judged = judge([truth()], [claim(), second])
    assert outcome.incidents == 2
    assert [one.verdict for one in judged] == [Verdict.RIGHT, Verdict.RIGHT]
    assert outcome.seconds == pytest.approx(36.0)


def test_another_cause_on_the_right_machine_finds_the_fault_but_not_its_cause() -> None:
    other = claim(fault="port_down", subject=node(1), action="Check the cable.")
    (outcome,), (judged,) = judge([truth()], [other])
    assert judged.verdict is Verdict.OTHER
    assert outcome.found
    assert (outcome.cause, outcome.place, outcome.action) == (False, False, False)


def test_a_note_about_something_else_has_found_nothing() -> None:
    note = claim(fault="gpu_xid", xid=31, severity=Severity.INFO, pages=())
    (outcome,), (judged,) = judge([truth()], [note])
    assert judged.verdict is Verdict.OTHER
    assert not outcome.found
    named = claim(fault="gpu_xid", xid=79, severity=Severity.INFO, pages=())
    assert judge([truth()], [named])[0][0].found


def test_who_only_suffers_from_a_fault_does_not_find_it_and_is_no_false_alarm() -> None:
    cause = truth(affected=(gpu(2),))
    (outcome,), (judged,) = judge([cause], [claim(subject=gpu(2), fault="gpu_silent")])
    assert judged.verdict is Verdict.SYMPTOM
    assert not outcome.found
    assert outcome.incidents == 1


def test_on_a_machine_that_has_nothing_a_claim_is_false() -> None:
    assert verdict([truth()], claim(subject=gpu(7))) is Verdict.FALSE


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (0.9, Verdict.FALSE),  # before anything was to be seen
        (2.9, Verdict.RIGHT),
        (3.1, Verdict.ECHO),
        (3.0 + ECHO.total_seconds() / 3600 + 0.01, Verdict.FALSE),
    ],
)
def test_a_claim_counts_from_the_first_sign_to_the_end_and_a_while_as_an_echo(
    hours: float, expected: Verdict
) -> None:
    assert verdict([truth()], claim(hours)) is expected


def test_an_echo_does_not_find_its_fault() -> None:
    (outcome,), _ = judge([truth()], [claim(3.1)])
    assert not outcome.found


def test_what_stood_before_counts_from_when_it_came_back() -> None:
    spans = ((NOON, NOON + timedelta(minutes=5)), (NOON + timedelta(hours=2), None))
    (outcome,), (judged,) = judge([truth()], [claim(spans=spans)])
    assert judged.verdict is Verdict.RIGHT
    assert outcome.seconds == 3600.0


def test_what_stands_all_the_time_finds_nothing() -> None:
    (outcome,), (judged,) = judge([truth()], [claim(0.0)])
    assert judged.verdict is Verdict.FALSE
    assert not outcome.found


def test_a_fault_is_found_from_its_first_sign_on() -> None:
    hidden = truth(detectable_from=NOON + timedelta(hours=2))
    assert verdict([hidden], claim(1.5, fault="gpu_pcie", condition="lanes")) is Verdict.FALSE
    (outcome,), _ = judge([hidden], [claim(2.5)])
    assert outcome.seconds == 1800.0


def test_what_names_the_fault_may_be_earlier_than_the_first_sign_that_was_estimated() -> None:
    early = truth(detectable_from=NOON + timedelta(hours=1, minutes=1))
    other = truth(subject=node(2), fault="leaf down", affected=(node(1), HERE))
    outcomes, (judged,) = judge([other, early], [claim(1.005)])
    assert (judged.verdict, judged.truth) == (Verdict.RIGHT, early.id)
    assert [one.incidents for one in outcomes] == [0, 1]
    assert (outcomes[1].seconds, outcomes[1].named_seconds) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (claim(0.99), Verdict.FALSE),  # before the fault itself
        (claim(1.005, fault="gpu_pcie", condition="pcie_narrow"), Verdict.FALSE),
        (claim(1.005, subject=gpu(2)), Verdict.FALSE),  # a machine that only suffers
    ],
)
def test_nothing_else_counts_before_the_first_sign(one: Claim, expected: Verdict) -> None:
    early = truth(detectable_from=NOON + timedelta(hours=1, minutes=1), affected=(gpu(2),))
    assert verdict([early], one) is expected


def test_of_two_faults_of_a_machine_a_claim_belongs_to_the_one_that_it_names() -> None:
    both = [truth(), truth(fault="GSP hang", subject=gpu(1, 1))]
    outcomes, judged = judge(both, [claim(fault="gpu_silent")])
    assert judged[0].truth == both[1].id
    assert [outcome.found for outcome in outcomes] == [False, True]


def test_advice_of_another_step_or_without_the_drain_is_not_right() -> None:
    for action in ("Drain the node, then reset the GPU.", "Reboot it.", ""):
        (outcome,), _ = judge([truth()], [claim(action=action)])
        assert outcome.cause
        assert not outcome.action


def test_a_node_that_is_silent_names_no_cause() -> None:
    dead = truth(subject=node(1), fault="dead node", severity=Severity.CRITICAL)
    (outcome,), (judged,) = judge([dead], [claim(fault="node_silent", subject=node(1))])
    assert judged.verdict is Verdict.OTHER
    assert outcome.found
    assert not outcome.cause


@pytest.mark.parametrize("fault", ["gpu_idle_held", "gpu_program"])
def test_how_a_gpu_is_used_is_no_claim_about_a_fault(fault: str) -> None:
    outcomes, judged = judge([truth()], [claim(fault=fault)])
    assert judged == []
    assert not outcomes[0].found


def test_only_critical_claims_that_are_false_wake_people_for_nothing() -> None:
    quiet = claim(5.0, subject=gpu(3), severity=Severity.WARNING, pages=())
    twice = claim(5.0, subject=gpu(2), pages=(NOON, NOON + timedelta(hours=6)))
    _, judged = judge([truth()], [claim(), quiet, twice])
    assert false_pages(judged) == 2


def test_windows_of_machines_are_found_missed_alarmed_or_quiet() -> None:
    seen = claim(spans=((NOON + timedelta(hours=1.5), END - timedelta(hours=1)),))
    alarm = claim(5.0, subject=gpu(2), spans=((NOON, NOON + timedelta(minutes=20)),))
    found = units([truth()], [seen, alarm], [node(1), node(2), node(3)], DAY)
    # Two hours of fault are eight windows, half an hour of echo is left out.
    assert found == Units(found=6, missed=2, alarmed=2, quiet=3 * 96 - 8 - 2 - 2)


def test_a_claim_about_several_machines_is_about_each() -> None:
    rack = claim(
        subject=node(2),
        members=(node(1).key, node(2).key),
        spans=((NOON + timedelta(hours=1), END),),
    )
    found = units([truth(affected=(node(2),))], [rack], [node(1), node(2), node(3)], DAY)
    assert (found.found, found.missed) == (8, 0)
    alone = units([truth()], [rack], [node(1), node(2), node(3)], DAY)
    assert alone.alarmed > found.alarmed


def test_a_claim_that_goes_on_after_the_echo_is_an_alarm() -> None:
    found = units([truth()], [claim(1.0)], [node(1)], DAY)
    assert (found.found, found.missed, found.alarmed) == (8, 0, 96 - 4 - 8 - 2)


def test_a_tally_survives_json_and_adds_up() -> None:
    one = tally([truth()], [claim(), claim(5.0, subject=gpu(2))], [node(n) for n in range(4)], DAY)
    assert Tally.from_json(one.to_json()) == one
    assert one.node_days == 4.0
    figures = score([one, one])
    assert figures["faults"]["recall"]["hits"] == 2
    assert figures["claims"]["verdicts"]["false"] == 2
    false = figures["claims"]["false_by_severity"]
    assert sum(it["value"] for it in false.values()) == pytest.approx(250.0)
    assert figures["faults"]["exactly_one"]["hits"] == 2
    assert figures["kinds"]["off the bus"]["precision"]["value"] == 0.5
    # Claims here are critical: two faults per 1,000 node-days against 250 false ones.
    for them in figures["natural"].values():
        assert them[0]["precision"] == pytest.approx(2.0 / 252.0)


def test_a_note_is_no_alarm() -> None:
    noted = claim(severity=Severity.INFO)
    figures = score([tally([truth()], [noted], [node(1)], DAY)])
    assert figures["faults"]["recall"]["hits"] == 1
    assert figures["claims"]["precision_by_severity"]["info"]["of"] == 1
    assert figures["claims"]["precision_by_severity"]["critical"]["of"] == 0
    assert figures["natural"]["alarms"][0]["recall"]["hits"] == 0


def test_no_fault_and_no_claim_is_no_score_of_one() -> None:
    figures = score([tally([], [], [node(1)], DAY)])
    assert figures["faults"]["recall"]["value"] is None
    assert figures["claims"]["precision"]["value"] is None
    assert figures["machines"]["f1"]["value"] == 0.0
    low, high = figures["claims"]["false_pages_per_1000_node_days"]["interval"]
    assert low == 0.0
    # The rule of three, times 1,000 (one-sided); two-sided it is 3.69.
    assert high == pytest.approx(3688.9, abs=0.1)


def test_a_curve_has_the_upper_edge_in_its_last_bin() -> None:
    outcomes, _ = judge(
        [
            truth(magnitude=0.1),
            truth(subject=gpu(2), magnitude=0.2),
            truth(subject=gpu(3), magnitude=0.4),
        ],
        [claim()],
    )
    bins = curve(outcomes, (0.1, 0.2, 0.4))
    assert [(it["recall"]["hits"], it["recall"]["of"]) for it in bins] == [(1, 1), (0, 2)]


def test_the_order_of_claims_and_faults_changes_nothing() -> None:
    truths = [
        truth(),
        truth(fault="GSP hang", subject=gpu(2)),
        truth(fault="NVSwitch", subject=node(3)),
    ]
    said = [claim(), claim(1.2, gpu(2), "gpu_silent"), claim(2.0, node(3), "port_down")]
    forward = tally(truths, said, [node(n) for n in range(5)], DAY)
    back = tally(truths[::-1], said[::-1], [node(n) for n in range(5)], DAY)
    assert sorted(forward.outcomes, key=repr) == sorted(back.outcomes, key=repr)
    assert forward.units == back.units
    assert forward.verdicts == back.verdicts


def test_the_cause_counts_from_when_it_was_named_for_good() -> None:
    at = [NOON + timedelta(hours=1, minutes=minutes) for minutes in (0, 1, 2, 3)]
    said = (Said(title="one", xid=code) for code in (79, 31, 79, 79))
    words = tuple(zip(at, said, strict=True))
    (outcome,), _ = judge([truth()], [claim(1.0, fault="gpu_xid", words=words)])
    assert (outcome.cause, outcome.named_seconds, outcome.named_at_first) == (True, 120.0, True)
    taken_back = claim(1.0, fault="gpu_xid", words=words[:2])
    (outcome,), _ = judge([truth()], [taken_back])
    assert (outcome.cause, outcome.named_seconds) == (False, None)


def test_programs_own_errors_are_judged_of_nobody() -> None:
    theirs = claim(subject=gpu(7), fault="gpud xid warn -> ", xid=31)
    assert judge([truth()], [theirs])[1] == []
    other = claim(subject=gpu(7), fault="gpud xid warn -> ", xid=109)
    assert verdict([truth()], other) is Verdict.FALSE


def test_slowness_names_what_slows_it() -> None:
    named = {
        condition: names("gpu_slow", Said(title="slow", condition=condition))
        for condition in ("", "gpu_clocks", "nvlink_crc")
    }
    assert named == {"": {"slow GPU"}, "gpu_clocks": {"stuck clocks"}, "nvlink_crc": {"NVLink CRC"}}
