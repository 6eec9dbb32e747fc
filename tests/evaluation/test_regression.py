"""Old and new detectors on the same faults: noise passes, a loss does not, a missing detector fails."""

import json
from dataclasses import replace

import pytest

from evaluation import regression
from evaluation.fleets import dense
from evaluation.judge.matching import Outcome
from evaluation.judge.tally import Message, Tally
from evaluation.regression import Answers, comparable, compare

EVERY = [f"fault {number}" for number in range(60)]


def answers(found: list[str], wrong: tuple[str, ...] = (), faults: list[str] = EVERY) -> Answers:
    return Answers(
        faults=frozenset(faults),
        found=frozenset(found),
        named=frozenset(found),
        wrong=frozenset(wrong),
    )


@pytest.mark.parametrize(
    ("lost", "gained", "worse"),
    [(0, 0, False), (4, 0, False), (5, 0, True), (6, 1, False), (7, 1, True), (5, 20, False)],
)
def test_only_a_loss_that_chance_does_not_explain_fails(
    lost: int, gained: int, worse: bool
) -> None:
    old, new = answers(EVERY[: 60 - gained]), answers(EVERY[lost:])
    assert [it.is_loss for it in compare(old, new)] == [worse, worse, False]
    assert all(not it.is_loss for it in compare(old, old))


@pytest.mark.parametrize(("more", "worse"), [(4, False), (5, True)])
def test_wrong_messages_about_more_subjects_are_a_loss_too(more: int, worse: bool) -> None:
    new = answers(EVERY, tuple(f"node {number}" for number in range(more)))
    assert [it.is_loss for it in compare(answers(EVERY), new)] == [False, False, worse]


def test_faults_that_only_one_was_given_do_not_count() -> None:
    other = [*EVERY[:55], *(f"new {number}" for number in range(5))]
    old, new = answers(EVERY), answers(other, faults=other)
    assert [(len(it.lost), len(it.gained)) for it in compare(old, new)] == [(0, 0)] * 3
    assert comparable(old, new)
    few = [*EVERY[:53], *(f"new {number}" for number in range(7))]
    assert not comparable(old, answers(few, faults=few))


def test_answers_are_made_of_a_tally_and_survive_json() -> None:
    outcomes = (
        Outcome(fault="fan", id="a", seconds=1.0, cause=True, incidents=1, named=1),
        Outcome(fault="fan", id="b", seconds=1.0, cause=True, incidents=2, named=1),
        Outcome(fault="fan", id="c"),
    )
    messages = tuple(
        Message(seconds=0.0, severity="warning", title="t", subject=subject, verdict=verdict)
        for subject, verdict in (("x", "false"), ("y", "right"))
    )
    found = Answers.of(Tally(node_days=1.0, outcomes=outcomes, messages=messages))
    assert [set(it) for it in (found.found, found.named, found.wrong)] == [{"a", "b"}, {"a"}, {"x"}]
    assert Answers.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_these_detectors_are_no_worse_than_those_before() -> None:
    old, new = regression.read(), regression.answers()
    said = "\n".join(regression.told(old, new))
    assert comparable(old, new), "the fleet has changed: python -m evaluation.regression --keep"
    assert not any(it.is_loss for it in compare(old, new)), said


@pytest.mark.slow
@pytest.mark.parametrize(("detector", "kinds"), [("gpu_pcie", ("PCIe width", "PCIe generation"))])
def test_without_one_detector_they_are_worse(detector: str, kinds: tuple[str, ...]) -> None:
    # Pairs that are the same on both sides tell nothing, so its own faults are all that is played.
    own = replace(dense, kinds=kinds)
    old, new = regression.answers(own), regression.answers(own, without=[detector])
    assert any(it.is_loss for it in compare(old, new))
    assert len(old.found) >= 0.8 * len(old.faults)
