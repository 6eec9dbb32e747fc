"""The page on accuracy: the first sentence is for an operator, and everything said is marked."""

from typing import Any

import pytest

from evaluation.accuracy_page.page import chosen, page
from evaluation.baselines import ALWAYS, NEVER, OURS, variants
from evaluation.judge.matching import Outcome
from evaluation.judge.tally import Message, Tally
from evaluation.plays import tallies

SILENT = Tally(node_days=700.0, outcomes=(Outcome(fault="fan"), Outcome(fault="dead node")))
OURS_SAID = Tally(
    node_days=700.0,
    outcomes=(
        Outcome(fault="fan", seconds=60.0, cause=True, incidents=1, named=1, told="warning"),
        Outcome(fault="dead node"),
        Outcome(fault="off the bus", seconds=1.0, cause=True, told="critical"),
        Outcome(fault="VBIOS drift", cause=True, told="info"),
    ),
    counts={"warning": {"right": 1, "false": 7}},
    wrong={"node_silent": 7},
    messages=(
        Message(
            seconds=3600.0,
            severity="warning",
            title="hot",
            subject="n1",
            verdict="right",
            about="fan",
        ),
        *[Message(seconds=90_000.0, severity="warning", title="a|b", subject="n2", verdict="false")]
        * 7,
    ),
)


def play(seed: int = 1, **more: Any) -> dict[str, Any]:
    everybody = {OURS: OURS_SAID, "gpud": SILENT, ALWAYS: SILENT, NEVER: SILENT}
    return {
        "use": "release",
        "seed": seed,
        **dict.fromkeys(("commit", "detectors", "fleet", "judge"), "0123456789abcdef"),
        "cpu_seconds": 70,
        "tallies": {name: one.to_json(messages=True) for name, one in everybody.items()},
        **more,
    }


def test_the_first_sentence_says_what_an_operator_gets() -> None:
    said = OURS_SAID.to_json()
    enough = play()
    enough["tallies"][OURS] = said | {"outcomes": said["outcomes"][:2] * 150}
    assert list(page([enough]))[2] == (
        "An operator of 1,000 nodes is told of 50 % of the faults that no sensor names, and reads"
        " 70 wrong messages a week."
    )
    assert list(page([play()]))[2] == (
        "In 700 node-days an operator was told of 1 of 2 faults that no sensor names, and read"
        " 7 wrong messages: too few to say more."
    )


def test_shares_of_few_faults_say_so() -> None:
    text = "\n".join(page([play()]))
    assert "0.50 (0.09 to 0.91, 1 of 2, too few)" in text
    whole = "1 of 1 (0.21 to 1.00)"
    assert f"| fan (inferred) | {whole} | {whole} | {whole} | 60 |" in text
    many = OURS_SAID.to_json() | {"outcomes": OURS_SAID.to_json()["outcomes"][:2] * 150}
    enough = play()
    enough["tallies"][OURS] = many
    assert "0.50 (0.44 to 0.56, 150 of 300)" in "\n".join(page([enough]))


def test_every_message_of_a_week_is_marked_right_or_wrong() -> None:
    lines = list(page([play()]))
    assert "| 1 | warning: hot | right | fan |" in lines
    assert "| 2 | warning: a/b (7 times) | **wrong** |  |" in lines
    assert "Not found, among faults that must be inferred: dead node 1." in lines


def test_the_trivial_ones_are_the_last_of_the_table() -> None:
    lines = [line.split(" | ")[0] for line in page([play()]) if line.count(" | ") == 5]
    rows = lines[: lines.index(f"| {NEVER}") + 1]
    assert rows[-2:] == [f"| {ALWAYS}", f"| {NEVER}"]
    assert rows[-4:-2] == [f"| {OURS}", "| gpud"]


def test_others_are_spoken_of_where_they_have_played() -> None:
    alone = play()
    del alone["tallies"]["gpud"]
    texts = ["\n".join(page([it])) for it in (play(), alone)]
    assert ["Other tools use their own published rules" in text for text in texts] == [True, False]
    assert ["No other tool has played these fleets" in text for text in texts] == [False, True]


def test_notes_about_no_fault_are_a_rate_where_every_play_counted_them() -> None:
    with_notes = play()
    with_notes["tallies"][OURS]["wrong_notes"] = 14
    for plays, rate in (([with_notes], "20.0 (10.9 to 33.6, 14)"), ([with_notes, play(2)], "-")):
        lines = [line for line in page(plays) if line.startswith(f"| {OURS} | ")]
        row = next(line for line in lines if line.count(" | ") == 5)
        assert row.endswith(f" | {rate} |")


def test_what_was_seen_before_is_counted_as_tuning_and_shown_nowhere() -> None:
    text = "\n".join(page([play(1, detectors="older"), play(2)]))
    assert "Seeds: 2." in text
    assert "1 more were played for tuning" in text


def test_without_a_play_the_page_says_how_to_make_one() -> None:
    text = "\n".join(page([play(use="tuning")]))
    assert "python -m evaluation.run release" in text
    assert "| gpud |" not in text


@pytest.mark.parametrize("best", variants("Mahalanobis")[:2])
def test_a_limit_is_chosen_on_tuning_seeds(best: str) -> None:
    found = Tally(node_days=700.0, outcomes=(Outcome(fault="fan", seconds=1.0, told="warning"),))
    tuned = play(tallies={it: SILENT.to_json() for it in variants("Mahalanobis")})
    tuned["tallies"][best] = found.to_json()
    assert chosen("Mahalanobis", tallies([tuned])) == best
    assert chosen("gpud", {}) == "gpud"


def test_recall_of_many_faults_stands_apart_from_the_week_of_the_world() -> None:
    enough = play(2, use="crowded")
    said = OURS_SAID.to_json()
    enough["tallies"] = {OURS: said | {"outcomes": said["outcomes"][:2] * 150}}
    lines = list(page([play(), enough]))
    assert "| inferred | 0.50 (0.44 to 0.56, 150 of 300) |" in "\n".join(lines)
    assert lines[2] == (
        "gpuvigil finds 50 % of the faults that no sensor names, of 300 on clusters with many faults,"
        " and sent 7 wrong messages in 700 node-days of clusters with as few as in life."
    )
    assert "costs a job" not in "\n".join(lines)
    costly = {**enough, "lost": {"": 0.1}}
    row = "| inferred, and costs a job 10% of its pace or more | 0.50 (0.44 to 0.56, 150 of 300) |"
    assert row in "\n".join(page([play(), costly]))
    cheap = {**enough, "lost": {"": 0.0999}}
    assert "costs a job" not in "\n".join(page([play(), cheap]))
    as_few = {**enough, "tallies": {OURS: said | {"outcomes": said["outcomes"][:2]}}}
    assert list(page([play(), as_few]))[2].startswith("In 700 node-days")
    more = {**enough, "tallies": {OURS: said | {"outcomes": said["outcomes"][:2] * 2}}}
    assert list(page([play(), more]))[2].startswith("gpuvigil finds 50 % of the faults")
    assert "## Recall on many faults" not in list(page([play()]))


def test_others_stand_beside_ours_on_the_fleets_with_many_faults_that_they_played() -> None:
    ours_alone = play(3, use="crowded")
    ours_alone["tallies"] = {OURS: SILENT.to_json()}
    lines = list(page([play(), ours_alone, play(2, use="crowded")]))
    head = "| detectors | inferred: found | right cause | one incident | names itself: found | messages a node-day |"
    at = lines.index(head) + 2
    assert [line.split(" | ")[0] for line in lines[at : at + 4]] == [
        f"| {OURS}",
        "| gpud",
        f"| {ALWAYS}",
        f"| {NEVER}",
    ]
    assert lines[at].endswith("| 0.50 (0.09 to 0.91, 1 of 2, too few) | 0.01 |")
    assert lines[at + 4] == ""
    alone = list(page([play(), ours_alone]))
    assert alone[alone.index(head) + 2].startswith(f"| {OURS} | 0.00 ")
    assert alone[alone.index(head) + 3] == ""
