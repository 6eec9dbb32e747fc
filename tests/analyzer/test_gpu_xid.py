"""What is said of a GPU that reported several Xids, or one of them many times."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.gpu_xid import DETECTOR, xid_faults
from gpuvigil.faults import xid
from gpuvigil.model import Event, EventKind, Finding, Severity

from .scene import NOON, SETTINGS, Scene, event, gpu

SECOND = timedelta(seconds=1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def reports(*codes: int, **more: str) -> list[Event]:
    """One a second, the last one a second ago; `x94="words"` gives the message of one of them."""
    return [
        replace(
            event(EventKind.XID, gpu(), NOON - (len(codes) - place) * SECOND, code),
            message=more.get(f"x{code}", f"NVRM: {code}"),
        )
        for place, code in enumerate(codes)
    ]


def advised(number: int) -> str:
    return f"GPU recovery action changed from 0x0 (None) to {number:#x}"


def found(*events: Event, overrides: tuple[str, ...] = ()) -> list[Finding]:
    settings = replace(SETTINGS, xid_overrides=overrides)
    return xid_faults(Scene(settings=settings).with_events(*events).window((DETECTOR,)))


def of(*codes: int, overrides: tuple[str, ...] = (), **more: str) -> Finding:
    (finding,) = found(*reports(*codes, **more), overrides=overrides)
    return finding


def test_the_worst_speaks_and_the_others_are_counted_the_gravest_first() -> None:
    events = reports(13, 95, 94, 13, 63, 95)
    events[0] = replace(events[0], count=4)
    (finding,) = found(*events)
    assert [(item.text, item.detail) for item in finding.evidence] == [
        ("Xid 95: 2 times, last at 11:59:59 UTC on 31 Jan", False),
        (f"meaning: {xid(95).summary.rstrip('.')}", True),
        (f"called by the driver: {xid(95).mnemonic}", True),
        ("message: NVRM: 95", True),
        ("other Xids: 94 x1, 13 x5, 63 x1", False),
    ]
    assert (finding.severity, finding.certain) == (CRITICAL, True)
    assert finding.since == NOON - 6 * SECOND


def test_a_report_without_words_or_company_is_told_alone() -> None:
    (finding,) = found(replace(reports(63)[0], message=""))
    assert [item.name for item in finding.evidence] == ["Xid 63", "meaning", "called by the driver"]
    assert finding.evidence[0].value == "reported at 11:59:59 UTC on 31 Jan"


OTHERS = (43, 44, 63, 66, 67, 92, 93, 121, 141)


@pytest.mark.parametrize(("number", "end"), [(7, " x1"), (8, "121 x1"), (9, "121 x1 and 1 more")])
def test_of_many_other_codes_eight_are_named(number: int, end: str) -> None:
    named = of(95, *OTHERS[:number]).evidence[-1]
    assert named.name == "other Xids"
    assert named.value.count(" x1") == min(number, 8)
    assert named.value.endswith(end)


def test_links_of_one_code_are_counted_apart() -> None:
    one = "NVLINK: NETIR_LINK_DOWN Nonfatal XC0 i0 link 4"
    events = reports(146, 146, 146, x146=one)
    events[0] = replace(events[0], message=one.replace("link 4", "link 5"))
    (finding,) = found(*events)
    assert finding.evidence[0].text.startswith("Xid 146: 2 times")
    assert finding.evidence[-1].value == "146 NETIR_LINK_DOWN nonfatal link 5 x1"


@pytest.mark.parametrize(
    ("codes", "overrides", "fault", "confined"),
    [
        ((13,), (), "gpu_program", True),
        ((13, 43), (), "gpu_program", True),
        ((13,), ("13=warning",), "gpu_xid", True),  # the site wants to hear of it
        ((94,), ("94=info",), "gpu_xid", True),  # it stands until a cure
        ((14,), (), "gpu_xid", False),  # no program's
        ((13, 63), ("13=critical",), "gpu_xid", False),
        ((95, 13), (), "gpu_xid", False),
    ],
)
def test_only_what_passes_and_is_a_note_about_a_program_is_the_programs(
    codes: tuple[int, ...], overrides: tuple[str, ...], fault: str, confined: bool
) -> None:
    finding = of(*codes, overrides=overrides)
    assert (finding.fault, finding.confined) == (fault, confined)


@pytest.mark.parametrize(
    ("code", "number", "severity", "certain", "action"),
    [
        (13, 1, CRITICAL, True, "Drain the node, then reset the GPU"),
        (13, 2, CRITICAL, True, "Drain the node and reboot it."),
        (13, 3, WARNING, True, "Restart the program"),  # a drain alone asks for no more
        (63, 1, CRITICAL, True, "Drain the node, then reset the GPU"),
        (95, 2, CRITICAL, True, "Drain the node and reboot it."),
        (74, 1, CRITICAL, True, "Drain the node, check the link's seating, then reset"),
        (74, 2, CRITICAL, True, "Drain the node and reboot it."),
        (64, 2, CRITICAL, True, "Drain the node, run the field diagnostic"),
    ],
)
def test_the_drivers_advice_asks_for_more_or_changes_nothing(
    code: int, number: int, severity: Severity, certain: bool, action: str
) -> None:
    finding = of(code, 154, x154=advised(number))
    assert finding.fault == "gpu_xid"
    assert (finding.severity, finding.certain) == (severity, certain)
    assert finding.action.startswith(action)
    assert [item.name for item in finding.evidence].count("Xid 154") == 1
    assert finding.evidence[-1].value.startswith("the driver asks")


def test_advice_that_asks_for_as_much_leaves_the_words_of_the_code() -> None:
    fatal = "NVLINK: NETIR_LINK_DOWN Fatal XC0 i0 link 4"
    finding = of(146, 154, x146=fatal, x154=advised(1))
    assert finding.action.endswith("if it comes back, ask support.")


def test_what_the_site_makes_a_note_of_makes_nothing_certain() -> None:
    less = of(13, 154, x154=advised(1), overrides=("154=info",))
    assert (less.severity, less.certain) == (INFO, False)
    sure = of(95, 154, x154=advised(1), overrides=("154=info",))
    assert (sure.severity, sure.certain) == (CRITICAL, True)


def test_advice_alone_is_told_as_itself() -> None:
    alone = of(154, x154=advised(2))
    assert (alone.severity, alone.action) == (CRITICAL, "Drain the node and reboot it.")
    assert [item.name for item in alone.evidence].count("Xid 154") == 1
    assert alone.evidence[-1].name == "message"


def test_what_a_detector_of_its_own_tells_is_none_of_these() -> None:
    assert found(*reports(79)) == []
    (both,) = found(*reports(79, 63))
    assert both.title.startswith("Xid 63")
    assert "79" not in " ".join(item.text for item in both.evidence)


def test_the_same_events_are_judged_anew_as_time_goes_on() -> None:
    # A program's own error stands for as long as it repeats.
    window = Scene().with_events(*reports(13)).window((DETECTOR,))
    kept = timedelta(seconds=SETTINGS.passing_xid_seconds)
    at = window.events[gpu().of_node().key][0].at
    assert xid_faults(window)
    assert xid_faults(replace(window, now=at + kept - SECOND / 1000))
    assert not xid_faults(replace(window, now=at + kept))


def test_an_event_more_is_seen_at_the_next_look() -> None:
    window = Scene().with_events(*reports(79, 48)).window((DETECTOR,))
    before = xid_faults(window)
    (more,) = reports(95)
    key = gpu().of_node().key
    after = xid_faults(replace(window, events={key: (*window.events[key], more)}))
    assert before
    assert after != before
    assert xid_faults(window) == before
