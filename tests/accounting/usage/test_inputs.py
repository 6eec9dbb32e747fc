"""Who sent in a range: found by the newest lines, and the same as all lines tell."""

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from accounting.usage.inputs import gpus_of, senders
from gpuvigil.clock import to_ns
from gpuvigil.store.memory import MemoryStore

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(["c", "other"]),
            st.integers(0, 3),
            st.one_of(st.integers(-4000, 100), st.integers(-70, 10)),
        )
    )
)
def test_who_sent_is_who_has_a_line_in_the_range(lines: list[tuple[str, int, int]]) -> None:
    store = MemoryStore()
    for cluster, number, seconds in lines:
        at = to_ns(NOON + timedelta(seconds=seconds))
        store.write(f"gpu,cluster={cluster},node=n1,uuid=GPU-{number} up=1i {at}".encode())
    found = gpus_of(senders(store, "gpu", "c", (NOON - HOUR, NOON)))
    assert found == {
        ("n1", f"GPU-{number}")
        for cluster, number, seconds in lines
        if cluster == "c" and -3600 <= seconds < 0
    }
