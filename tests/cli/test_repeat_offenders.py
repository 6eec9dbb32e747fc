"""What `gpuvigil lemons` shows of many offenders."""

import json
from datetime import timedelta

from accounting.hardware.repeat_offenders import Failure, Offender, Part
from cli.tables import lemons
from dashboard.lists.table import csv_text, json_text, text
from gpuvigil.model import Severity
from tests.dashboard.scene import NOON

HOUR = timedelta(hours=1)


def offender(number: int) -> Offender:
    failure = Failure(
        at=NOON - HOUR,
        severity=Severity.CRITICAL,
        fault="gpu_lost",
        incident=f"i-{number}",
        cluster="prod",
        node=f"n-{number}",
        slot="",
        serial="",
    )
    return Offender(
        part=Part.NODE,
        cluster="prod",
        node=f"n-{number}",
        name=f"n-{number}",
        score=2.0,
        failures=(failure, failure),
    )


def test_people_see_the_worst_fifty_and_programs_all() -> None:
    grid = lemons.grid([offender(n) for n in range(60)], None, everything=False, now=NOON)
    said = text(grid, 120)
    assert sum("yes" in line for line in said.splitlines()) == 50
    assert "10 more are not shown here" in said
    assert len(json.loads(json_text(grid))) == len(csv_text(grid).splitlines()) - 1 == 60
