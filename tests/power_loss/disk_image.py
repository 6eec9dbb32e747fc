"""What a disk may hold after a power loss, as POSIX has it: of a file what was synced last, and of
what was written since any part; of a folder's names those of its last sync, and of the changes since
any. The names of a file are synced with its folder, not with the file.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .recording import Call

# A block that is written in place is there as before or as after: disks write 4 KiB at once.
_BLOCK_BYTES = 4096
_MOST_ALONE = 4  # changes of names since the last sync that are also left out one by one


@dataclass(slots=True)
class _File:
    """A file's bytes: as they were synced, and what was done since."""

    synced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut to that size

    def content(self, how: str) -> bytes:
        """`lost`, `kept`, `torn` in the last write, `zeros` in the place of what is new at the end,
        or with a `hole` in the place of the first write.
        """
        since = list(self.since)
        if how == "lost" or not since:
            return self.synced
        if how == "hole":
            since = since[1:]
        elif how == "torn" and (last := since[-1][1]) is not None:
            since[-1] = since[-1][0], last[: self._torn(since[-1][0], len(last))]
        found = _applied(self.synced, since)
        if how == "zeros":
            found = (self.synced + bytes(max(len(found) - len(self.synced), 0)))[: len(found)]
        return found

    def _torn(self, at: int, size: int) -> int:
        """How much there is of a write that was torn: what is written in place, block by block."""
        half = size // 2
        in_place = at + half < len(self.synced)
        return max(half - (at + half) % _BLOCK_BYTES, 0) if in_place else half


HOW = ("lost", "kept", "torn", "zeros", "hole")


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of names, made whole or not at all: (folder, name) to what it names, or None."""

    names: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What may be on the disk, and what had been acknowledged when the power went."""

    after: int  # calls
    story: str
    acknowledged: tuple[str, ...]
    files: dict[str, bytes]
    folders: frozenset[str]

    def write(self, folder: Path) -> None:
        """Make it so, in a folder that is empty."""
        for name in sorted(self.folders):
            (folder / name).mkdir(exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


class DiskImage:
    """A folder on a disk, followed call by call."""

    def __init__(self, root: Path) -> None:
        """What is in `root` now is on the disk."""
        self._root = str(root)
        self._objects: dict[int, _File | dict[str, int]] = {0: {}}  # folders as they were synced
        self._now: dict[int, dict[str, int]] = {0: {}}
        self._of_inode = {root.stat().st_ino: 0}
        self._pending: list[_Change] = []
        for path in sorted(root.rglob("*")):
            made = self._made(path.stat().st_ino, is_folder=path.is_dir())
            if path.is_file():
                self._objects[made] = _File(synced=path.read_bytes())
            self._rename({path: made})
        self._sync_all()
        self.acknowledged: list[str] = []

    def follow(self, call: Call) -> None:
        """Do what a call did."""
        file = self._objects.get(self._of_inode.get(call.inode, -1))
        if call.what == "A":
            self.acknowledged.append(call.first.decode())
        elif call.what in "CM":
            made = self._made(call.inode, is_folder=call.what == "M")
            self._rename({Path(call.first.decode()): made})
        elif call.what in "WT":
            if isinstance(file, _File):
                file.since.append((call.offset, call.first if call.what == "W" else None))
        elif call.what == "S":
            self._sync(self._of_inode.get(call.inode, -1))
        else:
            first, second = (Path(it.decode()) for it in (call.first, call.second))
            there = self._find(first)
            gone: dict[Path, int | None] = {} if call.what == "L" else {first: None}
            self._rename(gone if call.what == "U" else {**gone, second: there})

    def unsynced(self) -> tuple[set[str], set[str]]:
        """Paths whose content or name is not on the disk yet, and those that are only gone from it
        when their folder is synced.
        """
        synced = self._paths(self._names(()))
        now = self._paths(self._now)
        changed = {
            path
            for path, number in now.items()
            if synced.get(path) != number
            or (isinstance(file := self._objects[number], _File) and file.since)
        }
        return changed, synced.keys() - now.keys()

    def path_of(self, call: Call) -> str:
        """The file that a call wrote to, below the root; empty when it has no name."""
        number = self._of_inode.get(call.inode)
        paths = self._paths(self._now).items()
        return next((path for path, of in paths if of == number), "")

    def tree(self) -> tuple[dict[str, bytes], frozenset[str]]:
        """Every file and folder as the program sees them."""
        return self._tree(self._now, "kept")

    def states(self, after: int, story: str) -> Iterator[State]:
        """What a power loss now may leave: the worst first, each once."""
        known = set()
        for chosen, how in self._choices():
            files, folders = self._tree(self._names(chosen), how)
            digest = _digest(files, folders)
            if digest not in known:
                known.add(digest)
                left = f"{len(chosen)} of {len(self._pending)} changes of names, writes {how}"
                yield State(
                    after=after,
                    story=f"{story}: {left}",
                    acknowledged=tuple(self.acknowledged),
                    files=files,
                    folders=folders,
                )

    def _choices(self) -> Iterator[tuple[Sequence[_Change], str]]:
        """Which changes of names there are, and what is left of the writes.

        Each is tried beside the best and the worst of the other, not beside all of them.
        """
        pending = self._pending
        for how in HOW:
            yield pending, how
        yield (), "kept"
        yield (), "lost"
        for number in range(len(pending) if len(pending) <= _MOST_ALONE else 0):
            yield pending[:number] + pending[number + 1 :], "kept"
            yield pending[: number + 1], "kept"

    def _names(self, changes: Iterable[_Change]) -> dict[int, dict[str, int]]:
        found = {
            number: dict(names)
            for number, names in self._objects.items()
            if not isinstance(names, _File)
        }
        for change in changes:
            for folder, name, to in change.names:
                _set(found[folder], name, to)
        return found

    def _tree(
        self, names: dict[int, dict[str, int]], how: str
    ) -> tuple[dict[str, bytes], frozenset[str]]:
        files: dict[str, bytes] = {}
        folders: set[str] = set()
        for path, number in self._paths(names).items():
            there = self._objects[number]
            if isinstance(there, _File):
                files[path] = there.content(how)
            else:
                folders.add(path)
        return files, frozenset(folders)

    def _paths(self, names: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
        """Every path below the root, with what it names."""
        found: dict[str, int] = {}

        def walk(folder: int, before: str) -> None:
            for name, number in names[folder].items():
                found[before + name] = number
                if number in names:
                    walk(number, f"{before}{name}/")

        walk(0, "")
        return found

    def _made(self, inode: int, *, is_folder: bool) -> int:
        number = len(self._objects)
        self._of_inode[inode] = number
        self._objects[number] = {} if is_folder else _File()
        if is_folder:
            self._now[number] = {}
        return number

    def _rename(self, names: dict[Path, int | None]) -> None:
        change = []
        for path, number in names.items():
            folder = self._find(path.parent)
            assert folder is not None, path
            _set(self._now[folder], path.name, number)
            change.append((folder, path.name, number))
        self._pending.append(_Change(tuple(change)))

    def _find(self, path: Path) -> int | None:
        if str(path) == self._root:
            return 0
        folder = self._find(path.parent)
        return None if folder is None else self._now[folder].get(path.name)

    def _sync(self, number: int) -> None:
        there = self._objects.get(number)
        if isinstance(there, _File):
            there.synced, there.since = there.content("kept"), []
        elif there is not None:
            mine = [it for it in self._pending if any(of == number for of, _, _ in it.names)]
            for change in mine:
                self._pending.remove(change)
                for folder, name, to in change.names:
                    of = self._objects[folder]
                    assert not isinstance(of, _File)
                    _set(of, name, to)

    def _sync_all(self) -> None:
        for number in list(self._objects):
            self._sync(number)


def _set(names: dict[str, int], name: str, to: int | None) -> None:
    if to is None:
        names.pop(name, None)
    else:
        names[name] = to


def _applied(synced: bytes, since: Iterable[tuple[int, bytes | None]]) -> bytes:
    found = bytearray(synced)
    for at, bytes_ in since:
        if bytes_ is None:
            del found[at:]
            found.extend(bytes(at - len(found)))
        else:
            found.extend(bytes(max(at - len(found), 0)))
            found[at : at + len(bytes_)] = bytes_
    return bytes(found)


def _digest(files: dict[str, bytes], folders: frozenset[str]) -> str:
    sum_ = hashlib.sha256(repr(sorted(folders)).encode())
    for name in sorted(files):
        sum_.update(repr((name, len(files[name]))).encode())
        sum_.update(files[name])
    return sum_.hexdigest()


def power_losses(image: DiskImage, calls: Sequence[Call]) -> Iterator[State]:
    """What may be left by a power loss right before each call that makes anything durable, changes
    a name, or acknowledges; each state once for what was acknowledged by then.
    """
    told: dict[tuple[str, int], None] = {}
    for after, call in enumerate(calls):
        if call.what not in "CMWT" or call.what == "C":
            yield from _new(image, after, calls, told)
        image.follow(call)
    yield from _new(image, len(calls), calls, told)


def _new(
    image: DiskImage, after: int, calls: Sequence[Call], told: dict[tuple[str, int], None]
) -> Iterator[State]:
    before = "" if after == 0 else _named(calls[after - 1])
    for state in image.states(after, f"after call {after} ({before})"):
        key = _digest(state.files, state.folders), len(state.acknowledged)
        if key not in told:
            told[key] = None
            yield state


def _named(call: Call) -> str:
    if call.what in "WTS":
        return f"{call.what} of {call.inode}"
    return f"{call.what} {call.first.decode()} {call.second.decode()}".strip()
