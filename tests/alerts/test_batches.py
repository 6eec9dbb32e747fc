"""What one answer of the hub does not hold is asked for in several."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from alerts.delivery.batches import all_of
from gpuvigil.clock import ManualClock
from gpuvigil.model import Record, RecordKind

from .examples import NOON, seconds
from .month.shelf import ShelfHub, Shelves


def at(number: int, second: int) -> Record:
    body = {"state": "held"}
    return Record(
        kind=RecordKind.NOTICE,
        id=f"n{number}",
        at=NOON + seconds(second),
        subject="c/n1",
        version=1,
        body=body,
    )


@given(st.lists(st.integers(-5, 100), max_size=60))
def test_all_of_a_time_is_found_once_however_many_they_are(times: list[int]) -> None:
    hub = ShelfHub(Shelves(), ManualClock(NOON))
    hub.write_records([at(*one) for one in enumerate(times)])
    end = NOON + timedelta(seconds=90)
    most = max([times.count(one) for one in times], default=0) + 1
    found = [one.id for one in all_of(hub, RecordKind.NOTICE, ("held",), NOON, end, most)]
    wanted = [f"n{number}" for number, time in enumerate(times) if 0 <= time < 90]
    assert sorted(found) == sorted(wanted)
