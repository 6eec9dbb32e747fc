"""Verdicts over cases made by hand."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.judge.claims import Claim, IncidentText, claims
from evaluation.judge.fault_names import names
from evaluation.judge.matching import ECHO, Verdict, judge, with_hidden
from evaluation.judge.tally import Tally, tally
from gpuvigil.model import SWITCH_DEVICE, Severity, Subject
from simulator.fleet import Truth
from tests.alerts.examples import opened
from tests.evaluation.made import NOON, gpu, node, port

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
    said = IncidentText(title="what it is called", condition=condition, xid=xid)
    values: dict[str, Any] = {
        "id": f"{fault} {subject.key} {hours}",
        "fault": fault,
        "subject": subject,
        "severity": Severity.CRITICAL,
        "action": "Drain the node and reboot it; if the GPU is lost again, check power.",
        "texts": ((at, said),),
        "spans": ((at, None),),
        "pages": (at,),
        "members": (subject.key,),
        "loud_from": None if more.get("severity") is Severity.INFO else at,
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
    assert outcome.action
    assert outcome.exactly_one


@pytest.mark.parametrize(("fault", "found"), [("gpu_clocks", True), ("clocks_lowered", False)])
@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_what_is_on_trial_is_in_the_digest_and_neither_finds_nor_is_wrong(
    fault: str, found: bool, severity: Severity
) -> None:
    at = NOON + timedelta(hours=1.01)
    said = claims([opened(fault=fault, subject=HERE, severity=severity, at=at)])
    (outcome,), _ = judge([truth(fault="stuck clocks")], said)
    assert outcome.found is found
    assert bool(said[0].pages) is (found and severity is Severity.CRITICAL)
    assert bool(tally([], said, 1, DAY).wrong) is found


def test_a_fault_of_which_nobody_spoke_is_missed() -> None:
    (outcome,), judged = judge([truth()], [])
    assert (outcome.found, outcome.cause, outcome.incidents, judged) == (False, False, 0, [])


def test_what_names_a_fault_that_nobody_had_to_find_is_not_wrong() -> None:
    until = truth().end
    named, other = claim(1.5), claim(1.6, fault="port_down", subject=node(1))
    _, judged = judge([], [named, other])
    hidden = truth(detectable_from=until)
    assert [one.verdict for one in with_hidden(judged, [hidden])] == [Verdict.RIGHT, Verdict.FALSE]
    # By another name, but about its very part while it lasted: there was something.
    doubted = claim(1.5, fault="gpu_hot")
    for one, what in ((doubted, Verdict.OTHER), (claim(3.1, fault="gpu_hot"), Verdict.FALSE)):
        (told,) = with_hidden(judge([], [one])[1], [hidden])
        assert (told.verdict, told.truth) == (what, hidden.id if what is Verdict.OTHER else None)
    # What is over when the fault begins has nothing to do with it.
    late = truth(start=until - timedelta(minutes=1), detectable_from=until)
    assert [one.verdict for one in with_hidden(judged, [late])] == [Verdict.FALSE, Verdict.FALSE]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("host_power", "PSU"),
        ("host_fan", "fan"),
        ("host_mount", "stale mount"),
        ("host_space", "disk full"),
    ],
)
def test_what_a_hosts_own_sensor_says_is_the_cause(fault: str, kind: str) -> None:
    broken = truth(node(1), kind)
    assert verdict([broken], claim(subject=node(1), fault=fault)) is Verdict.RIGHT
    another = truth(node(1), "dead node")
    assert verdict([another], claim(subject=node(1), fault=fault)) is Verdict.OTHER


@pytest.mark.parametrize(
    ("xid", "expected"), [(172, Verdict.RIGHT), (171, Verdict.OTHER), (48, Verdict.OTHER)]
)
def test_an_xid_that_names_on_chip_memory_names_its_fault(xid: int, expected: Verdict) -> None:
    broken = truth(fault="SRAM threshold")
    assert verdict([broken], claim(fault="gpu_xid", xid=xid)) is expected


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
    assert (outcome.cause, outcome.action) == (False, False)


def test_a_note_about_something_else_has_found_nothing() -> None:
    note = claim(fault="gpu_xid", xid=31, severity=Severity.INFO, pages=())
    (outcome,), (judged,) = judge([truth()], [note])
    assert judged.verdict is Verdict.OTHER
    assert not outcome.found


def test_a_note_that_names_the_fault_is_kept_as_a_note_and_finds_nothing() -> None:
    named = claim(fault="gpu_xid", xid=79, severity=Severity.INFO, pages=())
    (outcome,), _ = judge([truth()], [named])
    assert (outcome.found, outcome.cause, outcome.told) == (False, True, "info")
    assert outcome.incidents == 0


@pytest.mark.parametrize(("hours", "found"), [(2.99, True), (3.0, False)])
def test_a_note_that_grows_counts_from_then_on(hours: float, found: bool) -> None:
    grown = claim(loud_from=NOON + timedelta(hours=hours))
    (outcome,), _ = judge([truth()], [grown])
    assert outcome.found is found
    assert outcome.seconds == (pytest.approx((hours - 1.0) * 3600.0) if found else None)


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
    (outcome,), judged = judge([truth()], [claim(spans=spans, loud_from=NOON)])
    assert [one.verdict for one in judged] == [Verdict.FALSE, Verdict.RIGHT]
    assert (outcome.seconds, outcome.incidents) == (3600.0, 1)


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
    assert outcomes[1].seconds == 0.0


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


def test_a_tally_counts_messages_and_survives_json() -> None:
    twice = ((NOON, NOON + timedelta(hours=1)), (NOON + timedelta(hours=5), None))
    wrong = claim(0.0, gpu(2), spans=twice)
    note = claim(4.0, gpu(3), severity=Severity.INFO)
    one = tally([truth()], [claim(), wrong, note], 4, DAY)
    assert one.node_days == 4.0
    assert (one.false(), one.false(Severity.WARNING)) == (2, 0)
    assert one.wrong == {"gpu_lost": 2}
    assert one.wrong_notes == 1
    assert [(it.seconds, it.verdict, it.about) for it in one.messages] == [
        (0.0, "false", ""),
        (3636.0, "right", "off the bus"),
        (18000.0, "false", ""),
    ]
    assert Tally.from_json(one.to_json(messages=True)) == one


def test_nobody_is_asked_for_what_nobody_can_find() -> None:
    hidden = truth(detectable_from=NOON + timedelta(hours=3))
    assert tally([hidden], [], 1, DAY).outcomes == ()
    named = tally([hidden], [claim(1.5)], 1, DAY)
    assert (named.outcomes, named.counts) == ((), {"critical": {"right": 1}})


TRUTHS = [
    truth(),
    truth(fault="GSP hang", subject=gpu(2)),
    truth(fault="NVSwitch", subject=node(3)),
]
SAID = [
    *(claim(), claim(0.5), claim(1.2, gpu(2), "gpu_silent")),
    *(claim(2.0, node(3), "port_down"), claim(5.0, gpu(4))),
]


@given(st.permutations(TRUTHS), st.permutations(SAID))
def test_the_order_of_claims_and_faults_changes_nothing(
    truths: list[Truth], said: list[Claim]
) -> None:
    first, other = tally(TRUTHS, SAID, 5, DAY), tally(truths, said, 5, DAY)
    assert {it.id: it for it in first.outcomes} == {it.id: it for it in other.outcomes}
    assert replace(first, outcomes=()) == replace(other, outcomes=())


@given(st.timedeltas(timedelta(days=-300), timedelta(days=3000)))
def test_a_tally_is_the_same_at_any_time(later: timedelta) -> None:
    moved = [
        replace(
            it,
            start=it.start + later,
            end=it.end + later,
            detectable_from=it.detectable_from + later,
        )
        for it in TRUTHS
    ]
    said = [
        replace(
            it,
            texts=tuple((at + later, said) for at, said in it.texts),
            spans=tuple((since + later, until and until + later) for since, until in it.spans),
            loud_from=it.loud_from and it.loud_from + later,
        )
        for it in SAID
    ]
    span = (DAY[0] + later, DAY[1] + later)
    assert tally(moved, said, 5, span) == tally(TRUTHS, SAID, 5, DAY)


def test_the_cause_counts_from_when_it_was_named_for_good() -> None:
    at = [NOON + timedelta(hours=1, minutes=minutes) for minutes in (0, 1, 2, 3)]
    said = (IncidentText(title="one", xid=code) for code in (79, 31, 79, 79))
    words = tuple(zip(at, said, strict=True))
    (outcome,), _ = judge([truth()], [claim(1.0, fault="gpu_xid", texts=words)])
    assert (outcome.cause, outcome.named_at_first) == (True, True)
    taken_back = claim(1.0, fault="gpu_xid", texts=words[:2])
    (outcome,), _ = judge([truth()], [taken_back])
    assert not outcome.cause


def test_programs_own_errors_are_judged_of_nobody() -> None:
    theirs = claim(subject=gpu(7), fault="gpud xid warn -> ", xid=31)
    assert judge([truth()], [theirs])[1] == []
    other = claim(subject=gpu(7), fault="gpud xid warn -> ", xid=109)
    assert verdict([truth()], other) is Verdict.FALSE


def test_slowness_names_what_slows_it() -> None:
    named = {
        condition: names("gpu_slow", IncidentText(title="slow", condition=condition))
        for condition in ("", "gpu_clocks", "nvlink_crc")
    }
    assert named == {
        "": {"slow GPU", "slow rank"},
        "gpu_clocks": {"stuck clocks"},
        "nvlink_crc": {"NVLink CRC"},
    }


def at_switch(switch: str, port: str) -> Subject:
    return Subject(cluster="c", node=switch, device=SWITCH_DEVICE, port=port)


NEAR, FAR = at_switch("leaf", "33"), at_switch("spine", "1")
CABLE = truth(NEAR, "bad uplink", also=(FAR,))


@pytest.mark.parametrize("end", [NEAR, FAR])
def test_a_cable_is_as_well_named_by_either_of_its_ends(end: Subject) -> None:
    (outcome,), (judged,) = judge([CABLE], [claim(subject=end, fault="port_errors")])
    assert judged.verdict is Verdict.RIGHT
    assert (outcome.cause, outcome.place, outcome.exactly_one) == (True, True, True)


def test_another_cable_of_the_same_switch_is_about_nothing() -> None:
    other = claim(subject=at_switch("leaf", "34"), fault="port_errors")
    assert verdict([CABLE], other) is Verdict.FALSE


@pytest.mark.parametrize(("ports", "is_there"), [
    ((2, 3), True),  # of a leaf with four ports, whose first one carries nothing
    ((1, 9), True),
    ((2,), False),
    ((2, 9), False),  # this one is at another leaf
])  # fmt: skip
def test_a_leaf_is_told_by_several_of_its_ports_and_no_others(
    ports: tuple[int, ...], is_there: bool
) -> None:
    leaf = truth(port(1), "congestion", group="leaf", affected=tuple(map(port, (2, 3, 4))))
    keys = tuple(port(it).key for it in ports)
    said = claim(subject=port(ports[0]), fault="switch_congested", members=keys)
    (outcome,), _ = judge([leaf], [said])
    assert (outcome.cause, outcome.place) == (True, is_there)
    # What is no switch's is where it is.
    (outcome,), _ = judge([replace(leaf, group=None)], [said])
    assert outcome.place is (1 in ports)


def test_what_follows_from_a_lost_spine_has_not_found_it() -> None:
    lost = truth(at_switch("spine", "0"), "spine lost", group="spine", affected=(NEAR,))
    down = claim(subject=NEAR, fault="port_down")
    (outcome,), (judged,) = judge([lost], [down])
    assert (judged.verdict, outcome.found) == (Verdict.SYMPTOM, False)
    assert verdict([lost], claim(subject=lost.subject, fault="switch_down")) is Verdict.RIGHT


def test_a_hosts_link_is_named_by_its_switch_too() -> None:
    link = truth(port(1), "bad cable", also=(NEAR,))
    assert verdict([link], claim(subject=NEAR, fault="port_errors")) is Verdict.RIGHT
    assert verdict([link], claim(subject=NEAR, fault="port_down")) is Verdict.OTHER
    assert verdict([link], claim(subject=FAR, fault="port_errors")) is Verdict.FALSE


def test_a_job_that_hangs_is_named_by_any_of_its_nodes() -> None:
    job = truth(fault="hung process", also=(gpu(2),), affected=(gpu(2),))
    said = claim(subject=node(2), fault="gpu_hung", members=(HERE.key, gpu(2).key))
    (outcome,), (judged,) = judge([job], [said])
    assert (judged.verdict, outcome.found, outcome.exactly_one) == (Verdict.RIGHT, True, True)
    # What else its other nodes have does not find it, nor what is about ranks that only wait.
    assert verdict([job], claim(subject=node(2), fault="gpu_slow")) is Verdict.SYMPTOM
    assert verdict([replace(job, also=())], said) is Verdict.SYMPTOM
