"""A verdict on trial is a message once it was right often enough here, by the votes alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.config import AlertsSettings
from gpuvigil.faults import FAULTS, Confidence, Proof
from gpuvigil.faults.trial import (
    ALL,
    NONE,
    STARTS_ON_TRIAL,
    Feedback,
    feedback,
    on_trial,
    why,
)
from gpuvigil.model import Opinion, Severity, Subject
from tests.alerts.examples import GPU, NOON, REAL

TRIED = sorted(STARTS_ON_TRIAL)[0]


def vote(incident: int, useful: bool, by: str = "ada", subject: Subject = REAL) -> Opinion:
    return Opinion(
        id=f"{incident}:{by}",
        incident=f"i-{incident}",
        fault=TRIED,
        subject=subject,
        by=by,
        useful=useful,
        at=NOON,
    )


@pytest.mark.parametrize(
    ("right", "wrong", "proves"),
    [
        (0, 0, False),
        (2, 0, False),
        (3, 0, True),
        (3, 1, False),
        (8, 1, False),
        (9, 1, True),
        (17, 2, False),
        (18, 2, True),
    ],
)
def test_it_proves_itself_by_three_that_were_right_and_one_wrong_in_ten(
    right: int, wrong: int, proves: bool
) -> None:
    said = Feedback(right, wrong)
    assert said.proves is proves
    assert on_trial(TRIED, said, ()) is not proves


@pytest.mark.parametrize(
    ("proven", "held", "held_when_right"),
    [
        ((), True, False),
        ((ALL,), False, False),
        ((TRIED,), False, False),
        (("gpu_lost",), True, False),
        ((NONE,), True, True),
    ],
)
def test_a_site_proves_all_or_one_or_none_by_hand(
    proven: Sequence[str], held: bool, held_when_right: bool
) -> None:
    assert on_trial(TRIED, Feedback(), proven) is held
    assert on_trial(TRIED, Feedback(3, 0), proven) is held_when_right


@pytest.mark.parametrize("proven", [(), (NONE,)])
def test_what_ships_as_proven_is_never_held(proven: Sequence[str]) -> None:
    assert not on_trial("gpu_lost", Feedback(0, 50), proven)
    assert not on_trial("of_tomorrow", Feedback(), proven)


@pytest.mark.parametrize(
    ("votes", "counted"),
    [
        ([vote(1, True), vote(1, True, "bob")], Feedback(1, 0)),
        ([vote(1, True), vote(1, False, "bob")], Feedback(0, 1)),
        ([vote(1, True), vote(1, True, "bob"), vote(1, False, "eve")], Feedback(1, 0)),
        ([vote(1, True), vote(2, False)], Feedback(1, 1)),
    ],
)
def test_an_incident_counts_once_and_in_doubt_as_wrong(
    votes: Sequence[Opinion], counted: Feedback
) -> None:
    assert feedback(votes) == {TRIED: counted}


def test_a_simulated_machine_proves_nothing() -> None:
    assert feedback([vote(1, True, subject=GPU)]) == {}


VOTES = st.lists(
    st.builds(vote, st.integers(0, 9), st.booleans(), st.sampled_from(["ada", "bob", "eve"])),
    unique_by=lambda one: one.id,
)


@given(VOTES.flatmap(lambda votes: st.tuples(st.just(votes), st.permutations(votes))))
def test_the_order_of_votes_does_not_matter(both: tuple[list[Opinion], list[Opinion]]) -> None:
    assert feedback(both[0]) == feedback(both[1])


def test_what_it_waits_for_is_said_with_what_there_is() -> None:
    assert why(Feedback(2, 1), ()) == (
        "goes to the digest until it was right 3 times here and wrong at most once in 10"
        " (2 right, 1 wrong so far)"
    )
    assert why(Feedback(), (NONE,)) == "goes to the digest, as alerts.proven says none"


@pytest.mark.parametrize("key", sorted(STARTS_ON_TRIAL))
def test_what_is_on_trial_is_inferred_and_hides_nothing_that_is_proven(key: str) -> None:
    row = FAULTS[key]
    assert row.inferred
    assert not row.xids
    assert not row.told_by
    assert row.explains is None  # else a message would give way to what nobody is told of
    assert not row.drains
    assert row.severity is Severity.WARNING  # a note is in the digest anyway


def test_what_no_fleet_has_ever_judged_is_on_trial() -> None:
    unjudged = {
        key
        for key, row in FAULTS.items()
        if row.inferred and row.severity is not Severity.INFO and row.explains is None
        if not row.simulated_as and key != "gpu_settings"  # its conditions are faults of the fleets
    }
    assert {key for key, row in FAULTS.items() if row.proof is Proof.ON_TRIAL} >= unjudged


@pytest.mark.parametrize(
    ("proven", "wrong"),
    [
        ((), []),
        ((ALL,), []),
        ((NONE,), []),
        ((TRIED, "gpu_lost"), []),
        ((ALL, TRIED), ["'all' stands alone"]),
        (("clock_lowered",), ["there is no fault 'clock_lowered'; see docs/faults.md"]),
    ],
)
def test_a_setting_that_names_no_fault_is_a_mistake(
    proven: tuple[str, ...], wrong: list[str]
) -> None:
    found = AlertsSettings(proven=proven).wrong()
    assert [text for _, _, key, text in found if key == "proven"] == wrong


@pytest.mark.parametrize(
    ("fault", "confidence"),
    [
        ("gpu_lost", Confidence.REPORTED),
        ("gpu_hot", Confidence.INFERRED),
        (TRIED, Confidence.ON_TRIAL),
    ],
)
def test_confidence_follows_from_what_a_verdict_rests_on(
    fault: str, confidence: Confidence
) -> None:
    assert FAULTS[fault].confidence is confidence
