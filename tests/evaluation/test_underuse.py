"""Who is told that little of a GPU is used, held against the truth."""

from datetime import timedelta

import pytest

from evaluation.holders.page import of_underuse
from evaluation.holders.underuse import Right, _little, _of_holder, staged
from tests.evaluation.made import NOON

WORDS = {"l": Right.LITTLE, "e": Right.EITHER, "-": Right.ENOUGH}


@pytest.mark.parametrize(
    ("used", "sm", "memory", "right"),
    [
        (8.9, 50.0, 0.8, Right.LITTLE),
        (9.1, 50.0, 0.8, Right.EITHER),
        (13.1, 50.0, 0.8, Right.ENOUGH),
        (82.0, 46.9, 0.8, Right.LITTLE),
        (81.9, 46.9, 0.8, Right.EITHER),
        (61.9, 46.9, 0.8, Right.ENOUGH),
        (97.0, 64.0, 0.8, Right.ENOUGH),
        (50.0, 22.9, 0.2, Right.LITTLE),
        (50.0, 22.9, 0.4, Right.ENOUGH),
    ],
)
def test_near_a_limit_either_is_right(used: float, sm: float, memory: float, right: Right) -> None:
    assert _little(used, sm, memory) is right


@pytest.mark.parametrize(
    ("rights", "said", "expected"),
    [
        ("--ellll", "----###", {"little": 1, "little, said": 1, "minutes late": 5}),
        ("--ellll", "-------", {"little": 1, "missed: x": 1}),
        ("l-e----", "#-#----", {}),
        ("-------", "-------", {"look-alikes": 1}),
        ("-------", "--##---", {"look-alikes": 1, "look-alikes blamed": 1, "wrong: x": 1}),
        ("eeee---", "--###--", {"wrong: x": 1}),
    ],
)
def test_spans_of_a_gpu_are_counted(rights: str, said: str, expected: dict[str, int]) -> None:
    looks = [
        (NOON + timedelta(minutes=5 * n), 0, WORDS[right], told == "#")
        for n, (right, told) in enumerate(zip(rights, said, strict=True))
    ]
    found = _of_holder(looks, "x")
    spans = len([part for part in said.split("-") if part])
    wrong = found["wrong: x"]
    assert (found["said"], found["said, rightly"]) == (spans, spans - wrong)
    left = {key: n for key, n in found.items() if n and not key.startswith("said")}
    assert left == expected


def test_the_page_says_what_was_found_and_what_was_not() -> None:
    counts = {
        "little": 40,
        "little, said": 39,
        "minutes late": 78,
        "missed: sweep": 1,
        "said": 50,
        "said, rightly": 50,
        "look-alikes": 900,
    }
    stamp = dict.fromkeys(("commit", "detectors", "fleet"), "0123456789abcdef")
    lines = list(of_underuse({**stamp, "seeds": [7, 8], "counts": counts}))
    assert (
        "| 1.000 (0.929 to 1.000, 50 of 50) | 0.975 (0.871 to 0.996, 39 of 40) | 2.0 | 0 of 900 |"
        in lines
    )
    assert lines[-1] == "By workload or scene: missed: sweep 1."
    assert lines[2].startswith("`python -m evaluation.holders.underuse 2`: 2 fleets")
    assert "Not played yet" in "\n".join(of_underuse(None))


def test_a_seed_makes_the_same_scenes() -> None:
    _, percents, names = staged(5)
    assert names
    assert (percents, names) == staged(5)[1:]
    assert set(percents) == {row for row, name in names.items() if name in _READ}


_READ = {"low and steady", "just above"}
