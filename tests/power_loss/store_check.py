"""What has to be true of a store after a power loss."""

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from gpuvigil.clock import to_ns
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.embedded import Embedded, Latest, Window
from tests.power_loss.store_program import HOUR, HOURS, LINES, START, opened, write

GPU = MEASUREMENTS["gpu"]
FIELD = "power_watts"
MEAN = Aggregate(function=Function.MEAN, field=FIELD)


def wrong_with(folder: Path, acknowledged: Collection[str], forgotten: Collection[int] = ()) -> str:
    """What is wrong with the store in a folder where `acknowledged` bodies are to be; empty when they
    are there once, the others wholly or not at all, and those are taken when they come again.

    `forgotten`: bodies that lie in sealed files, and whose arrivals went with other tables before.
    """
    store = opened(folder)
    try:
        there = {number: lines_of(store, number) for number in HOURS}
        broken = {number: lines for number, lines in there.items() if lines not in {0, LINES}}
        if broken:
            return f"not whole, or not once: {broken}"
        lost = [number for number in HOURS if str(number) in acknowledged and not there[number]]
        if lost:
            return f"lost: {lost}"
        for number in HOURS.keys() - set(forgotten):
            if write(store, number, HOURS[number]) == bool(there[number]):
                return f"body {number}, {there[number]} lines, is taken for the contrary"
        if any(lines_of(store, number) != LINES for number in HOURS):
            return "not whole after all bodies came again"
        found = store.answer(Latest(measurement=GPU, fields=(FIELD,), since_ns=0))
        newest = set(found[FIELD].to_pylist())
        return "" if newest == {float(max(HOURS))} else f"the newest are of {newest}"
    finally:
        store.close()


def lines_of(store: Embedded, number: int) -> int:
    """Lines of a body; each has a minute of its own."""
    start = START + HOURS[number] * HOUR + timedelta(seconds=number * 60)
    question = Window(
        measurement=GPU,
        aggregates=(MEAN,),
        start_ns=to_ns(start),
        end_ns=to_ns(start + timedelta(seconds=60)),
    )
    return sum(store.answer(question)["samples"].to_pylist())
