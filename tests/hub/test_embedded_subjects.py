"""Subjects by number, by place and by slot, held against plain dictionaries."""

import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS
from hub.embedded.continue_on_failure import ContinueOnFailure
from hub.embedded.subject_slots import SubjectSlots
from hub.embedded.subjects import subjects

NODE = MEASUREMENTS["node"]
TAGS = ("cluster", "node")
# Some of them make one text when their tags are joined.
NAMES = st.tuples(st.sampled_from(["", "a", "b", "a\x1fb"]), st.sampled_from(["", "c", "b\x1fc"]))


@given(
    numbered=st.dictionaries(st.integers(0, 9), NAMES, max_size=6),
    more=st.lists(NAMES, max_size=4),
    where=st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(["a", "b", "c"])), max_size=2),
)
def test_subjects_have_their_places_in_order_and_keep_their_numbers_when_others_come(
    numbered: dict[int, tuple[str, str]],
    more: list[tuple[str, str]],
    where: list[tuple[str, str]],
) -> None:
    known = subjects(numbered.items(), numbered.values(), 2)
    every = sorted({*numbered.values(), *more})
    for them, names in ((known, sorted(set(numbered.values()))), (known.with_more(more), every)):
        assert list(them.names) == names
        assert them.place_of == {name: place for place, name in enumerate(names)}
        assert [it.to_pylist() for it in them.columns] == [
            [name[n] for name in names] for n in (0, 1)
        ]
        assert len(them.by_number) == max(numbered, default=0) + 1
        for number, place in enumerate(them.by_number.tolist()):
            name = numbered.get(number)
            assert place == (-1 if name is None else names.index(name))
        found = them.wanted(NODE, where)
        if not where:
            assert found is None
            continue
        assert found is not None
        for number, place in enumerate(found.tolist()):
            name = numbered.get(number)
            fits = name is not None and all(name[TAGS.index(tag)] == it for tag, it in where)
            assert place == (them.place_of[name] if fits and name is not None else -1)


def table(chunks: Sequence[Sequence[tuple[str, str]]]) -> pa.Table:
    return pa.table(
        {
            tag: pa.chunked_array([[name[n] for name in some] for some in chunks], pa.string())
            for n, tag in enumerate(TAGS)
        }
    )


@given(
    tables=st.lists(st.lists(st.lists(NAMES, max_size=4), max_size=3), max_size=5),
    numbered=st.dictionaries(st.integers(1, 9), NAMES, max_size=4),
)
def test_a_subject_has_one_slot_for_good_and_each_slot_the_place_of_its_subject(
    tables: list[list[list[tuple[str, str]]]], numbered: dict[int, tuple[str, str]]
) -> None:
    slots, slot_of = SubjectSlots(2), dict[tuple[str, str], int]()
    known = subjects(numbered.items(), numbered.values(), 2)
    for chunks in tables:
        names = [name for some in chunks for name in some]
        found = slots.of(table(chunks), TAGS).tolist()
        for name, slot in zip(names, found, strict=True):
            assert slot_of.setdefault(name, slot) == slot
        assert sorted(slot_of.values()) == list(range(len(slots)))
        everyone, places = slots.places(known)
        assert {slot: everyone.names[place] for slot, place in enumerate(places.tolist())} == {
            slot: name for name, slot in slot_of.items()
        }
        # The numbers of sealed files are those of the same subjects as before.
        for number, name in numbered.items():
            assert everyone.names[everyone.by_number[number]] == name
        # Nothing is made anew while nothing has changed, nor kept when something has.
        again = slots.places(known)
        assert (again[0] is everyone, again[1] is places) == (True, True)
        others = subjects([], [], 2)
        assert list(slots.places(others)[0].names) == sorted(slot_of)


def test_the_first_failure_is_told_at_the_end_and_keeps_nothing_else_back() -> None:
    each = ContinueOnFailure(threading.Event())
    for number in range(4):
        with each:
            if number % 2:
                raise StoreError(f"number {number}")
            each.done += 1
    with pytest.raises(StoreError, match="number 1"):
        each.count()
    assert each.done == 2
    well = ContinueOnFailure(threading.Event())
    with well:
        well.done += 1
    assert well.count() == 1


def test_what_is_no_failure_of_the_store_and_any_when_it_is_stopped_ends_it_at_once() -> None:
    stopping = threading.Event()
    each = ContinueOnFailure(stopping)
    with pytest.raises(KeyError), each:
        raise KeyError
    assert each.count() == 0
    stopping.set()
    with pytest.raises(StoreError), each:
        raise StoreError("stopped")
