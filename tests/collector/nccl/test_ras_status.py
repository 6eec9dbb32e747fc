"""What is taken from an answer of NCCL's RAS, and what two of them say of a job."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.nccl import ras_status, versions
from collector.nccl.ras_status import Place, parse
from collector.nccl.ras_verdict import verdict
from collector.nccl.unreadable import UnreadableError
from gpuvigil.model import MOST_RANKS, Collective, RankState
from tests.collector.nccl.statuses import communicator, missing, rank, status

HERE = frozenset({"10.0.0.1"})


def gpu_of(place: Place) -> str | None:
    return f"GPU-{place.device}" if place.host in HERE else None


def of(before: str, after: str | None = None) -> Collective | None:
    then, now = parse(before.encode()), parse((after or before).encode())
    return verdict(then, now, "job 7", gpu_of, HERE)


def told(found: Collective | None) -> tuple[str, list[int]] | None:
    return None if found is None else (found.stand.value, [it.rank for it in found.ranks])


def test_a_status_is_read_whole() -> None:
    text = status(communicator([rank(0, 917, device=4)], [missing(1, dead=True)]), timeouts=2)
    read = parse(text.encode())
    (one,) = read.communicators
    assert (read.version, read.timeouts, one.key, one.size) == ("2.30.7", 2, "0xabc12 0x1f:0x2e", 2)
    assert (one.ranks[0].place, one.ranks[0].counts["AllReduce"]) == (
        Place("10.0.0.1", 4000, 4),
        917,
    )
    assert (one.missing[0].unresponsive, one.missing[0].dead) == (True, True)


def test_the_one_rank_that_never_came_is_named_with_its_gpu() -> None:
    ranks = [rank(n, 4710 if n == 5 else 4711) for n in range(16)]
    found = of(status(communicator(ranks)))
    assert found is not None
    assert told(found) == ("behind", [5])
    assert (found.operation, found.entered, found.size, found.count) == ("AllReduce", 4711, 16, 1)
    assert (found.ranks[0].gpu, found.ranks[0].reached) == ("GPU-5", 4710)
    assert (found.holder, found.hosts) == ("job 7", ("10.0.0.1",))
    far = of(status(communicator([rank(n, 8 - (n == 9)) for n in range(16)])))
    assert far is not None
    assert (far.ranks[0].gpu, far.ranks[0].host, far.ranks[0].device) == (None, "10.0.0.2", 1)


def test_a_job_that_moves_is_none_of_our_business() -> None:
    before = status(communicator([rank(0, 10), rank(1, 11)]))
    assert of(before, status(communicator([rank(0, 11), rank(1, 11)]))) is None
    assert told(of(before)) == ("behind", [0])


def test_all_at_one_place_are_together_whoever_waits_for_what() -> None:
    assert told(of(status(communicator([rank(0, 7), rank(1, 7)])))) == ("together", [])


def test_who_waits_in_one_communicator_is_not_blamed_in_another() -> None:
    """Ranks 0 and 1 are a pair; 0 waits for 1, and all others wait for the pair."""
    world = communicator([rank(n, 99 if n > 1 else 98) for n in range(8)], name="0xa")
    pair = communicator([rank(0, 51), {**rank(1, 50), "rank": 1}], name="0xb")
    found = of(status(world, pair))
    assert told(found) == ("behind", [1])
    assert found is not None
    assert (found.group, found.entered) == ("0xb 0x1f:0x2e", 51)


def test_in_a_small_communicator_a_rank_keeps_its_number_of_the_large_one() -> None:
    world = communicator([rank(n, 9) for n in range(8)], name="0xa")
    pair = communicator([{**rank(6, 4), "rank": 0}, {**rank(7, 5), "rank": 1}], name="0xb")
    assert told(of(status(world, pair))) == ("behind", [6])


@pytest.mark.parametrize(
    ("lost", "timeouts", "said"),
    [
        (missing(1, dead=True), 1, ("dead", [1])),
        (missing(1), 1, ("unreachable", [1])),
        (missing(1), 0, ("together", [])),
        (missing(1, unresponsive=False), 1, ("together", [])),
    ],
)
def test_who_is_missing_is_dead_unreachable_or_only_elsewhere(
    lost: Mapping[str, Any], timeouts: int, said: tuple[str, list[int]]
) -> None:
    assert told(of(status(communicator([rank(0, 5)], [lost]), timeouts=timeouts))) == said


def test_who_was_missing_once_only_is_not_unreachable() -> None:
    whole = status(communicator([rank(0, 5), rank(1, 5)]), timeouts=1)
    once = status(communicator([rank(0, 5)], [missing(1)]), timeouts=1)
    assert told(of(whole, once)) == ("together", [])
    assert told(of(once, whole)) == ("together", [])


@pytest.mark.parametrize(
    ("ill", "said"),
    [
        ({"error": 1}, ("failed", [1])),
        ({"error": 6}, ("failed", [1])),
        ({"state": 2}, ("failed", [1])),
        ({"abort_flag": True}, ("failed", [1])),
        ({"state": 7}, ("starting", [1])),
        ({"error": 7}, ("together", [])),
        ({}, ("together", [])),
    ],
)
def test_an_error_is_told_when_it_lasts(ill: dict[str, Any], said: tuple[str, list[int]]) -> None:
    text = status(communicator([rank(0, 5), rank(1, 5, **ill)]))
    assert told(of(text)) == said
    assert told(of(status(communicator([rank(0, 5), rank(1, 5)])), text)) == ("together", [])


def test_what_is_being_ended_is_late_for_nothing() -> None:
    ranks = [rank(0, 5), rank(1, 4, finalize_called=True)]
    assert told(of(status(communicator(ranks)))) == ("together", [])


def test_answers_of_two_jobs_say_nothing_together() -> None:
    ranks = [rank(0, 5), rank(1, 4)]
    one, other = (status(communicator(ranks, name=name)) for name in ("0xa", "0xb"))
    assert of(one, other) is None


@pytest.mark.parametrize("count", [MOST_RANKS, MOST_RANKS + 1])
def test_of_very_many_only_some_are_named_and_all_are_counted(count: int) -> None:
    ranks = [rank(n, 5 if n < count else 6) for n in range(3 * count)]
    found = of(status(communicator(ranks)))
    assert found is not None
    assert (found.count, len(found.ranks)) == (count, MOST_RANKS)


# --- hostile answers -------------------------------------------------------------------------------

GOOD = status(communicator([rank(0, 1), rank(1, 2)], [missing(2)]))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"9" * 5000, "no JSON"),
        (b"null", "not as NCCL writes it"),
        (b"{}", "not as NCCL writes it"),
        (b"[]", "not as NCCL writes it"),
        (GOOD.replace('"size": 3', '"size": -1').encode(), "a number was expected"),
        (GOOD.replace('"size": 3', '"size": true').encode(), "a number was expected"),
        (GOOD.replace('"size": 3', '"size": 1e400').encode(), "a number was expected"),
        (GOOD.replace('"size": 3', f'"size": {2**53}').encode(), "a number was expected"),
        (GOOD.replace("0xabc12", "\\u001b[2J").encode(), "a text was expected"),
        (GOOD.replace("0xabc12", "x" * 129).encode(), "a text was expected"),
        (b" " * ras_status.LARGEST_BYTES, "no JSON"),
        (b" " * (ras_status.LARGEST_BYTES + 1), "over 4 MiB"),
    ],
)
def test_what_is_no_status_is_one_named_error(content: bytes, why: str) -> None:
    with pytest.raises(UnreadableError, match=why) as raised:
        parse(content)
    assert len(str(raised.value)) <= 200


@given(st.randoms(use_true_random=False), st.integers(1, 20))
def test_no_damaged_status_raises_anything_else(chance: random.Random, times: int) -> None:
    content = bytearray(GOOD.encode())
    for _ in range(times):
        at = chance.randrange(len(content))
        content[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    try:
        parse(content)
    except UnreadableError:
        return


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=5), of, max_size=3),
    max_leaves=8,
)


@given(st.data(), JUNK)
def test_no_other_value_at_any_place_raises_anything_else(data: st.DataObject, junk: Any) -> None:
    value = json.loads(GOOD)
    place = value
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = junk
            break
        place = place[key]
    try:
        verdict(parse(GOOD.encode()), parse(json.dumps(value).encode()), "job 7", gpu_of, HERE)
    except UnreadableError:
        return


# --- versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.30.7", ""),
        ("2.29.2", ""),
        ("2.29.1", "issues/1762"),
        ("2.28.9", "issues/1762"),
        ("2.28.6", "no JSON"),
        ("2.27.3", "no JSON"),
        ("2.26.2", "no JSON"),
        ("2.29.6", ""),
        ("2.29.7", "issues/2346"),
        ("2.29.8", ""),
        ("2.31.0", "not in collector.nccl_ras_versions"),
        ("2.30", "not known"),
        ("", "not known"),
    ],
)
def test_a_version_is_asked_that_the_site_named_and_no_report_forbids(
    version: str, why: str
) -> None:
    named = {"2.30.7", "2.29.2", "2.29.1", "2.28.9", "2.28.6", "2.29.6", "2.29.7", "2.29.8", "2.30"}
    said = versions.refusal(version, named)
    assert why in said
    assert bool(said) is bool(why)


def test_of_every_version_that_may_be_asked_the_open_report_is_known() -> None:
    assert [it.refused for it in versions.risks((2, 30, 7))] == [False]
    assert all("github.com" in it.source or "NVIDIA/nccl" in it.source for it in versions.RISKS)


def test_the_gravest_is_told_first() -> None:
    ranks = [rank(0, 5), rank(1, 4), rank(2, 5, error=1)]
    assert told(of(status(communicator(ranks, [missing(3)]), timeouts=1))) == ("unreachable", [3])
    assert told(of(status(communicator(ranks)))) == ("failed", [2])
    assert [it.value for it in RankState][:4] == ["dead", "unreachable", "failed", "behind"]
