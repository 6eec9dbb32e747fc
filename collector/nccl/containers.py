"""Reads a pickle of plain containers, and of nothing else. Pure.

PyTorch's Flight Recorder writes protocol 2 with dictionaries, lists, tuples, texts and numbers.
This module reads those few opcodes by itself: none of them could name a class or call anything, so
nothing of a hostile file runs. Python's own unpickler is not used at all: even without any class it
can be made to reserve gigabytes by a number for its memo, or to hash for ever. The opcodes:
CPython, Lib/pickletools.py.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from .unreadable import UnreadableError

# The 2,000 entries that PyTorch keeps by default are 250 kB with their frames, in 140,000 steps, of which
# 16,000 make a list or a dictionary (measured, PyTorch 2.13.0). These take the memory.
LARGEST_BYTES = 16 * 1024 * 1024
MOST_STEPS, MOST_CONTAINERS = 2_000_000, 250_000
LONGEST_NUMBER_BYTES = 9  # of 64 bits, and a sign


class _Mark:
    pass


_MARK = _Mark()


class _Machine:
    """The pickle machine: the stack, the memo and the position in the content."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def take(self, count: int) -> bytes:
        taken = self.content[self.at : self.at + count]
        if len(taken) < count:
            raise UnreadableError("the file ends too early")
        self.at += count
        return taken

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def since_mark(self) -> list[Any]:
        """Pop and return what was pushed since the last mark; the mark is popped, too."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                taken = self.stack[place + 1 :]
                del self.stack[place:]
                return taken
        raise UnreadableError("a mark is missing")

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise UnreadableError("a value is missing")
        return self.stack.pop()

    def top(self, kind: type[Any]) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise UnreadableError(f"a {kind.__name__} was expected")
        return self.stack[-1]


_BYTE, _SHORT, _INT, _SIZE = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I"))
_FLOAT = struct.Struct(">d")


def load(content: bytes) -> Any:
    """Return the value; UnreadableError if it is no plain pickle of protocol 2, or too large."""
    if len(content) > LARGEST_BYTES:
        raise UnreadableError(f"the file is over {LARGEST_BYTES // 1024**2} MiB")
    if content[:2] != b"\x80\x02":
        raise UnreadableError("the file is no pickle of protocol 2")
    machine = _Machine(content)
    machine.at = 2
    for _ in range(MOST_STEPS):
        opcode = machine.take(1)
        if opcode == b".":
            return machine.pop()
        step = _STEPS.get(opcode)
        if step is None:
            raise UnreadableError(f"the file has an opcode that no plain data needs: {opcode!r}")
        step(machine)
    raise UnreadableError(f"the file has over {MOST_STEPS} parts")


def _text(machine: _Machine) -> None:
    content = machine.take(machine.number(_SIZE))
    machine.stack.append(content.decode(errors="replace"))


def _long(machine: _Machine) -> None:
    size = machine.number(_BYTE)
    if size > LONGEST_NUMBER_BYTES:
        raise UnreadableError("a number is too long")
    machine.stack.append(int.from_bytes(machine.take(size), "little", signed=True))


def _tuple(count: int) -> Callable[[_Machine], None]:
    def build(machine: _Machine) -> None:
        taken = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(taken)))

    return build


def _marked_tuple(machine: _Machine) -> None:
    machine.stack.append(tuple(machine.since_mark()))


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.top(list).extend(values)


def _set(machine: _Machine, pairs: list[Any]) -> None:
    if len(pairs) % 2:
        raise UnreadableError("a key is without a value")
    into = machine.top(dict)
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(key, str):
            raise UnreadableError("a key is no text")
        into[key] = value


def _set_one(machine: _Machine) -> None:
    value = machine.pop()
    _set(machine, [machine.pop(), value])


def _set_many(machine: _Machine) -> None:
    _set(machine, machine.since_mark())


def _put(form: struct.Struct) -> Callable[[_Machine], None]:
    def put(machine: _Machine) -> None:
        machine.memo[machine.number(form)] = machine.top(object)

    return put


def _get(form: struct.Struct) -> Callable[[_Machine], None]:
    def get(machine: _Machine) -> None:
        number = machine.number(form)
        if number not in machine.memo:
            raise UnreadableError("it refers to what is not there")
        machine.stack.append(machine.memo[number])

    return get


def _number(form: struct.Struct) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.number(form))


def _constant(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value)


def _new(make: Callable[[], Any]) -> Callable[[_Machine], None]:
    def new(machine: _Machine) -> None:
        machine.containers += 1
        if machine.containers > MOST_CONTAINERS:
            raise UnreadableError(f"the file has over {MOST_CONTAINERS} lists")
        machine.stack.append(make())

    return new


_STEPS: Mapping[bytes, Callable[[_Machine], None]] = {
    b"(": _constant(_MARK),
    b"}": _new(dict),
    b"]": _new(list),
    b")": _constant(()),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"K": _number(_BYTE),
    b"M": _number(_SHORT),
    b"J": _number(_INT),
    b"G": _number(_FLOAT),
    b"\x8a": _long,
    b"X": _text,
    b"t": _marked_tuple,
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"a": _append,
    b"e": _appends,
    b"s": _set_one,
    b"u": _set_many,
    b"q": _put(_BYTE),
    b"r": _put(_SIZE),
    b"h": _get(_BYTE),
    b"j": _get(_SIZE),
}
