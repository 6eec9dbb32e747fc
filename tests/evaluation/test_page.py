"""The scoreboard's page: aims hold or are missed by what was counted, and like is held against like."""

import pytest

from evaluation.aims import in_short, plain
from evaluation.alarms import natural
from evaluation.curves import by_magnitude
from evaluation.judge.matching import Outcome, Units
from evaluation.judge.score import Tally
from evaluation.page import page

SPEED = {
    "command": "python -m evaluation.speed",
    "cpu_seconds_per_node_day": {"fleet": 0.1, "detectors": 1.2},
    "cpus": 2,
    "nodes": 125,
    "passes": 1080,
    "python": "3.11",
    "judged": "j",
    "fleet": "f",
}


def fault(kind: str, found: bool, magnitude: float | None = None) -> Outcome:
    """One that is told rightly in one incident, or not at all."""
    count = int(found)
    return Outcome(
        fault=kind,
        magnitude=magnitude,
        seconds=5.0 if found else None,
        cause=found,
        incidents=count,
        named=count,
    )


def quiet(node_days: float, wrong: int) -> Tally:
    return Tally(node_days=node_days, by_severity={"critical": {"false": wrong}})


def lines(found: dict[str, list[Tally]]) -> str:
    return "\n".join(in_short({part: {"gpuvigil": them} for part, them in found.items()}))


@pytest.mark.parametrize(
    ("node_days", "wrong", "verdict"),
    [(9_999.0, 0, "**missed**"), (10_000.0, 0, "holds"), (20_000.0, 1, "**missed**")],
)
def test_no_wrong_critical_holds_only_over_all_the_node_days(
    node_days: float, wrong: int, verdict: str
) -> None:
    (line,) = [it for it in lines({"quiet": [quiet(node_days, wrong)]}).splitlines() if "0.0" in it]

    assert line.endswith(f"| {verdict} |")


def test_each_aim_of_a_part_is_held_against_what_was_counted() -> None:
    said = Tally(
        node_days=1.0,
        outcomes=(*[fault("GSP hang", found=True)] * 96, *[fault("fan", False, 0.2)] * 4),
        by_severity={"critical": {"right": 98, "false": 2}},
        units=Units(found=90, missed=10, alarmed=0, quiet=100),
    )

    table = lines({"report": [said]})

    assert "| report | 0.98 (0.93 to 0.99, 98 of 100) | **missed** |" in table
    assert "| report | 1.00 (0.96 to 1.00, 96 of 96) | holds |" in table
    assert "| report | 0.96 (0.90 to 0.98, 96 of 100) | holds |" in table
    assert "| report | 0.947 (0.000 to 1.000, 1 fleets) | **missed** |" in table


def test_who_said_nothing_and_what_is_mostly_missed_are_told_by_name() -> None:
    outcomes = (*[fault("slow GPU", False, 0.1)] * 2, fault("off the bus", found=True))
    own = [Tally(node_days=1.0, outcomes=outcomes)]

    short = lines({"report": own})
    rows = "\n".join(natural({"report": {"gpuvigil": own, "PCA": [Tally(node_days=1.0)]}}))

    assert "Found in fewer than nine of ten: slow GPU (0 of 2)." in short
    assert "of the right cause: slow GPU." in short
    assert "| PCA | criticals | - | - | - |" in rows


def test_a_curve_goes_from_the_mildest_to_the_gravest() -> None:
    """What is left of a clock is small where the fault is grave; what a GPU loses is large."""
    faults = (fault("stuck clocks", True, 0.2), fault("slow GPU", False, 0.25))
    bins = by_magnitude({"report": {"gpuvigil": [Tally(node_days=1.0, outcomes=faults)]}})

    mild, _, grave = (it["recall"] for it in bins["gpuvigil"])

    assert (mild["of"], grave["hits"], grave["of"]) == (0, 1, 2)


def test_the_library_is_compared_on_fleets_that_all_have_played() -> None:
    def entry(seed: int, *who: str) -> dict[str, object]:
        one = Tally(node_days=1.0, outcomes=(fault("fan", True, 0.5),)).to_json()
        stamp = {"fleet": "f", "judged": "j", "commit": "abcdefabcdef-dirty", "command": "c"}
        return {"part": "kept-out kinds", "seed": seed, **stamp, "tallies": dict.fromkeys(who, one)}

    runs = {f"{seed}": entry(seed, "gpuvigil", *who) for seed, who in ((1, ("PCA",)), (2, ()))}

    text = "\n".join(page({"runs": runs, "history": []}, SPEED))

    assert "The best of them finds 1 of the 1, our rules 1." in text
    assert "`j` (**earlier detectors**) | `abcdefabc` (changed)" in text


def test_a_kind_with_a_size_is_no_plain_sign() -> None:
    counted = plain(
        [
            Tally(
                node_days=1.0,
                outcomes=(
                    fault("off the bus", found=True),
                    fault("port down", found=False),
                    fault("slow GPU", found=False, magnitude=0.1),
                ),
            )
        ]
    )

    assert (counted["hits"], counted["of"]) == (1, 2)
