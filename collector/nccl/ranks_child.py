"""The child process that asks a stalled job's NCCL twice, reports how its ranks stand, and ends.

Before anything is sent, it checks that whoever may answer is one of the processes in the question,
in its own network namespace, with a version that may be asked.
"""

import ipaddress
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuvigil import lifeline
from gpuvigil.model import Collective, RankState, Source

from ..inference.binding import listening
from ..sensors import files
from . import awaited_rank, dump_files, flight_recorder, inspector, library, ras_client, versions
from .question import Answer, Asked, Look, answer, read_question
from .ras_client import SilentError
from .ras_status import Place, Status
from .ras_verdict import verdict
from .unreadable import TooLargeError, UnreadableError

_NICE = 10  # the job comes first, even while it is stalled
_MOST_JOBS = 8
_STOP = threading.Event()
_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def main(arguments: Sequence[str]) -> int:
    """Look as the one argument asks, and print the answer as one line.

    After SIGTERM no more questions are asked, but the answer to the current one is read: NCCL does
    not notice a closed connection, and its thread would spin until it has its answer together
    (NVIDIA/nccl, src/ras/client_support.cc: rasClientEventLoop).
    """
    lifeline.hold()
    signal.signal(signal.SIGTERM, lambda *_: _STOP.set())
    asked = read_question(arguments[0])
    os.nice(_NICE)
    sys.stdout.write(answer(_LOOKS[asked.look](asked)) + "\n")
    sys.stdout.flush()
    return 0


def ask_ras(asked: Asked) -> Answer:
    """Ask RAS twice; any failure becomes the answer's reason, and nothing is tried again."""
    try:
        addresses = _addresses(asked)
        before = ras_client.ask(addresses)
        if _STOP.wait(asked.pause_seconds):
            return Answer()
        # Another process may listen there by now.
        after = ras_client.ask(_addresses(asked))
    except SilentError as error:
        return _silent(asked, str(error))
    except UnreadableError as error:
        return Answer(why=str(error), is_final=isinstance(error, TooLargeError))
    return ras_answer(asked, before, after, own_hosts(asked.proc_root))


def dumps(asked: Asked, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """Return what PyTorch's dumps of the one job say."""
    start = dump_files.StartRank(rank=asked.begin_rank, share=asked.begin_share)
    found = dump_files.read(asked.directories, asked.users[0], asked.youth_seconds, sleep, start)
    (holder,) = asked.holders
    return Answer(found=flight_recorder.collectives(found, holder) if found else ())


def waits(asked: Asked) -> Answer:
    """Return the rank that waits least, for each job here whose ranks report how long they wait."""
    where = (asked.directories, asked.users, asked.youth_seconds)
    ones = awaited_rank.awaited_ranks(inspector.read(*where))
    if ones:
        ones = list(awaited_rank.with_earlier_cost(ones, inspector.read(*where, is_earlier=True)))
    host = os.uname().nodename
    found = []
    for one in ones:
        # A line may name any process: only those of its own user count.
        gpus = _inner(asked, str(one.op.owner))
        holders = [it for it in gpus if one.pids.get(host, set()) & gpus[it].keys()]
        if len(holders) == 1:
            of = gpus[holders[0]].get(one.pid, {}) if one.host == host else {}
            gpu = next(iter(of.values())) if len(of) == 1 else None
            found.append(one.collective(holders[0], gpu))
    return Answer(found=tuple(found[:_MOST_JOBS]))


def ras_answer(asked: Asked, before: Status, after: Status, hosts: frozenset[str]) -> Answer:
    """Return the verdict on two answers, about the job here whose processes are in them."""
    gpus = _inner(asked)
    own = [_own(status, gpus, hosts) for status in (before, after)]
    if own[0] is None or own[1] is None:
        return Answer(why="who answers is none of the job's processes here")
    if own[0] != own[1]:
        return Answer(why="two jobs answered at one port, each once")
    holder = own[0]
    found = verdict(before, after, holder, lambda place: _gpu(place, gpus[holder], hosts), hosts)
    return Answer(found=() if found is None else (found,))


def _inner(asked: Asked, user: str | None = None) -> dict[str, dict[int, Mapping[int, str]]]:
    """Return the GPUs of each job's processes, by their pids inside their namespace.

    With `user`, only those of this user's processes.
    """
    return {
        holder: {
            inner: of
            for pid, of in pids.items()
            if user is None or _owner(asked.proc_root, pid) == user
            for inner in inner_pids(asked.proc_root, pid)
        }
        for holder, pids in asked.holders.items()
    }


def _silent(asked: Asked, why: str) -> Answer:
    """Return that the job is silent; with several jobs behind the port, only the reason is known."""
    if len(asked.holders) != 1:
        return Answer(why=why)
    (holder,) = asked.holders
    return Answer(found=(Collective(by=Source.RAS, holder=holder, stand=RankState.SILENT),))


def _addresses(asked: Asked) -> list[tuple[str, int]]:
    """Return where to ask.

    Raises UnreadableError where somebody else might answer, or a process must not be asked.
    """
    pids = [pid for of in asked.holders.values() for pid in of]
    users = {_user(asked.proc_root, pid) for pid in pids}
    found: list[tuple[str, int]] = []
    for words in listening(f"{asked.proc_root}/self", asked.port):
        place = words[1].partition(":")[0]
        if words[7] not in users or len(users) != 1:
            raise UnreadableError("another user listens at NCCL's port")
        if place in _LOOPBACK:
            found.append((_LOOPBACK[place], asked.port))
    if not found:
        raise UnreadableError("nobody listens at NCCL's port in this network namespace")
    for pid in pids:
        if why := versions.refusal(library.loaded(asked.proc_root, pid), asked.versions):
            raise UnreadableError(why)
    return sorted(set(found), reverse=True)


# As proc(5) writes them in net/tcp and net/tcp6 on a machine that is little endian.
_LOOPBACK = {"0100007F": "127.0.0.1", "00000000000000000000000001000000": "::1"}


def _user(proc_root: str, pid: int) -> str:
    for line in (files.read(f"{proc_root}/{pid}/status") or "").splitlines():
        if line.startswith("Uid:"):
            return line.split()[2]
    raise UnreadableError(f"process {pid} is gone")


def _owner(proc_root: str, pid: int) -> str | None:
    """Return the user of a process; None where the process is gone."""
    try:
        return _user(proc_root, pid)
    except UnreadableError:
        return None


def inner_pids(proc_root: str, pid: int) -> tuple[int, ...]:
    """Return the pid that a process has in its own, innermost pid namespace, as a tuple of one."""
    for line in (files.read(f"{proc_root}/{pid}/status") or "").splitlines():
        if line.startswith("NSpid:"):
            return tuple(int(word) for word in line.split()[1:] if word.isdigit())[-1:]
    return (pid,)


def own_hosts(proc_root: str) -> frozenset[str]:
    """Return this machine's addresses, as far as this namespace has them.

    From proc(5), fib_trie and if_inet6.
    """
    found = set(_LOCAL.findall(files.read(f"{proc_root}/self/net/fib_trie") or ""))
    for line in (files.read(f"{proc_root}/self/net/if_inet6") or "").splitlines():
        digits = line.partition(" ")[0]
        found.add(str(ipaddress.IPv6Address(int(digits, 16))))
    return frozenset(found)


_Gpus = Mapping[int, Mapping[int, str]]


def _own(status: Status, gpus: Mapping[str, _Gpus], hosts: frozenset[str]) -> str | None:
    """Return the job whose processes of this node are in an answer; None for none, or for several."""
    here = {place.pid for place in _places(status) if place.host in hosts}
    found = [holder for holder, pids in gpus.items() if here & pids.keys()]
    return found[0] if len(found) == 1 else None


def _places(status: Status) -> Iterable[Place]:
    return (place for one in status.communicators for _, place in one.places())


def _gpu(place: Place, pids: _Gpus, hosts: frozenset[str]) -> str | None:
    """Return the place's GPU; a process with one GPU has that one, whatever index it sees it under."""
    of = pids.get(place.pid, {}) if place.host in hosts else {}
    return next(iter(of.values())) if len(of) == 1 else of.get(place.device)


_LOOKS: Mapping[Look, Callable[[Asked], Answer]] = {
    Look.RAS: ask_ras,
    Look.DUMPS: dumps,
    Look.INSPECTOR: waits,
}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
