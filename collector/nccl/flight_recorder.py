"""Parses one rank's dump of PyTorch's Flight Recorder, as far as it tells the rank's stand. Pure.

The format: pytorch/pytorch v2.14.1, torch/csrc/distributed/c10d/FlightRecorderDetail.hpp:343-510.
Frames, paths and sizes are dropped. A rank's number is in its file's name only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuvigil.model import MOST_RANKS, Collective, RankState, RankStatus, Source, spans

from . import containers
from .unreadable import UnreadableError, flag

MOST_GROUPS = 8  # reported per look
MOST_ENTRIES = 100_000
MOST_MEMBERS = 65_536
_LONGEST = 128


@dataclass(slots=True)
class GroupProgress:
    """How far a rank is in one process group."""

    reached: int = 0  # the last collective that it entered, 0: none
    open: bool = False  # whether it has not left that one yet
    operations: dict[int, str] = field(default_factory=dict)  # by number; those still in the ring
    members: tuple[int, ...] = ()  # all ranks of the group, as far as the rank knows them


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One rank's dump, by the names of its process groups."""

    version: str
    groups: Mapping[str, GroupProgress]


def parse(content: bytes) -> Dump:
    """Parse a pickle, or the JSON that PyTorch also offers; UnreadableError for all else."""
    try:
        value = _json(content) if content[:1] == b"{" else containers.load(content)
        return _dump(value)
    except UnreadableError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableError(f"it is no Flight Recorder dump: {error!r}"[:200]) from None


def _json(content: bytes) -> Any:
    if len(content) > containers.LARGEST_BYTES:
        raise UnreadableError(f"the file is over {containers.LARGEST_BYTES // 1024**2} MiB")
    try:
        return json.loads(content)
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"the file is no JSON: {type(error).__name__}") from None


def _dump(value: Mapping[str, Any]) -> Dump:
    entries = value.get("entries", [])
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"over {MOST_ENTRIES} entries")
    groups: dict[str, GroupProgress] = {}
    numbers: dict[str, str] = {}  # names of groups, by their numbers in pg_status
    entries = sorted(entries, key=lambda it: _whole(it["record_id"]))
    for entry in entries:
        _add(entry, groups, numbers)
    whole = not entries or _whole(entries[0]["record_id"]) == 0
    for number, status in value.get("pg_status", {}).items():
        if number in numbers:
            # The rank also entered the collectives that the ring buffer has lost.
            progress = groups[numbers[number]]
            last = _whole(status["last_enqueued_collective"])
            if last > progress.reached:
                progress.reached, progress.open = (
                    last,
                    _whole(status["last_completed_collective"]) < last,
                )
    for name, about in value.get("pg_config", {}).items():
        # Gloo has a group without a name, which is skipped. For a group that the ring buffer has lost
        # entirely, it is not known how far it was.
        if name and (whole or name in groups):
            progress = groups.setdefault(_text(name), GroupProgress())
            progress.members = _ranks(_text(about["ranks"], MOST_MEMBERS * 8))
    return Dump(version=_text(value["version"]), groups=groups)


def _add(
    entry: Mapping[str, Any], groups: dict[str, GroupProgress], numbers: dict[str, str]
) -> None:
    """Add an entry to its group's progress; of several with one number (coalesced) the last counts."""
    if flag(entry["is_p2p"]):
        return
    name = _text(entry["process_group"][0])
    numbers[str(_whole(entry["pg_id"]))] = name
    progress = groups.setdefault(name, GroupProgress())
    number = _whole(entry["collective_seq_id"])
    backend, _, operation = _text(entry["profiling_name"]).rpartition(":")
    is_open = not flag(entry["retired"]) if backend == "gloo" else entry["state"] != "completed"
    before = progress.operations.get(number)
    progress.operations[number] = operation if before in {None, operation} else "several"
    if number >= progress.reached:
        progress.reached, progress.open = number, is_open


def _ranks(text: str) -> tuple[int, ...]:
    """Parse `[0, 1]`; empty for anything else."""
    words = text.strip("[] ").split(",") if text.strip("[] ") else []
    if len(words) > MOST_MEMBERS or not all(word.strip().isdigit() for word in words):
        return ()
    return tuple(int(word) for word in words if len(word) < 12)


def _text(value: object, longest: int = _LONGEST) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise TypeError("a text was expected")
    return value


def _whole(value: object) -> int:
    """Return a whole number, which JSON may write as text; TypeError for anything else."""
    if isinstance(value, str) and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**53:
        raise TypeError("a number was expected")
    return value


def collectives(dumps: Mapping[int, Dump], holder: str) -> tuple[Collective, ...]:
    """Return where the ranks of these dumps stand, in up to MOST_GROUPS process groups.

    Groups in which a rank waits or disagrees come first, larger ones before smaller ones; then the
    largest of the others: dumps of other nodes may say that a rank waits there.
    """
    found: dict[str, dict[int, GroupProgress]] = {}
    for rank, dump in sorted(dumps.items()):
        for name, progress in dump.groups.items():
            found.setdefault(name, {})[rank] = progress
    ones = [_collective(name, by_rank, holder) for name, by_rank in found.items()]
    ones.sort(key=lambda it: (it.stand is RankState.TOGETHER, -it.size, it.group))
    return tuple(ones[:MOST_GROUPS])


def _collective(name: str, by_rank: Mapping[int, GroupProgress], holder: str) -> Collective:
    size = max(len(by_rank), *(len(progress.members) for progress in by_rank.values()))
    top = max(progress.reached for progress in by_rank.values())
    number, unlike = _disagreement(by_rank)
    ranks = [
        RankStatus(
            rank=rank,
            stand=RankState.WAITING if progress.open else RankState.TOGETHER,
            reached=progress.reached,
        )
        for rank, progress in by_rank.items()
    ]
    if unlike:
        ranks = [replace(it, stand=RankState.DIFFERENT) for it in ranks if it.rank in unlike]
        stand = RankState.DIFFERENT
    else:
        stand = RankState.WAITING if any(c.open for c in by_rank.values()) else RankState.TOGETHER
    ranks.sort(key=lambda it: (it.reached or 0, it.rank))
    here = {rank: progress for rank, progress in by_rank.items() if progress.reached == top}
    operations = {progress.operations.get(top, "") for progress in by_rank.values()} - {""}
    return Collective(
        by=Source.FLIGHT_RECORDER,
        holder=holder,
        stand=stand,
        group=name,
        size=size,
        operation=min(operations, default=""),
        entered=number if unlike else top,
        count=len(ranks),
        ranks=tuple(ranks[:MOST_RANKS]),
        waiting=spans(rank for rank, progress in here.items() if progress.open),
        left=spans(rank for rank, progress in here.items() if not progress.open),
        late=spans(by_rank.keys() - here.keys()),
    )


def _disagreement(by_rank: Mapping[int, GroupProgress]) -> tuple[int, frozenset[int]]:
    """Return the first collective that ranks name differently, and the ranks in the minority."""
    numbers = sorted({number for progress in by_rank.values() for number in progress.operations})
    for number in numbers:
        named: dict[str, set[int]] = {}
        for rank, progress in by_rank.items():
            if number in progress.operations:
                named.setdefault(progress.operations[number], set()).add(rank)
        if len(named) > 1 and "several" not in named:
            most = max(named.values(), key=lambda them: (len(them), -min(them)))
            return number, frozenset(by_rank) & frozenset.union(
                *(frozenset(them) for them in named.values() if them is not most)
            )
    return 0, frozenset()
