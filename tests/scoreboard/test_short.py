"""The aims on the scoreboard's first lines: each holds or is missed by what was counted."""

import pytest

from scoreboard.judge.matching import Outcome, Units
from scoreboard.judge.score import Tally
from scoreboard.short import in_short, plain


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
