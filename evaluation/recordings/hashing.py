"""Names of a site replaced by meaningless words: the same name always gives the same word."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    Inventory,
    PortIdentity,
    Subject,
)

# Events whose words come from the kernel or gpuvigil; others name files, mounts and commands.
_TOLD = frozenset(
    {
        *(EventKind.XID, EventKind.SXID, EventKind.PCIE_ERROR, EventKind.MACHINE_CHECK),
        *(EventKind.GPU_LOST, EventKind.GPU_RESET, EventKind.OOM_KILL, EventKind.SHUTDOWN),
        EventKind.STORAGE_ERROR,
    }
)
_PROCESS = re.compile(r"[^\s,\[\]()]+ \(pid (\d+)\)")
_JOB = re.compile(r"\b(job|pid) \d+")


@dataclass(slots=True)
class Names:
    """Hashes names with a salt, so that nobody can find a name by trying."""

    salt: str
    known: dict[str, str] = field(default_factory=dict)

    def word(self, kind: str, name: str | None) -> str | None:
        """Return a word like `node-3f2a91c07e`; an empty name or None stays as it is."""
        if not name:
            return name
        made = f"{kind}-{self._digest(name)[:10]}"
        self.known.setdefault(name, made)
        if kind == "node" and "." in name:
            self.known.setdefault(name.partition(".")[0], made)
        return made

    def uuid(self, name: str) -> str:
        """Return a word in the form of a UUID."""
        hexes = self._digest(name)
        parts = (hexes[:8], hexes[8:12], hexes[12:16], hexes[16:20], hexes[20:32])
        made = f"GPU-{'-'.join(parts)}"
        self.known.setdefault(name, made)
        if name.startswith(("GPU-", "MIG-")):
            self.known.setdefault(name[4:], made[4:])
        return made

    def subject(self, one: Subject) -> Subject:
        """Return the subject with its names replaced."""
        return replace(
            one,
            cluster=self.word("cluster", one.cluster) or "",
            node=self.word("node", one.node) or "",
            gpu=None if one.gpu is None else self.uuid(one.gpu),
        )

    def text(self, words: str) -> str:
        """Return the text with all names hashed so far replaced, and without names of processes."""
        words = _PROCESS.sub(r"process (pid \1)", words)
        if self.known:
            names = sorted(self.known, key=len, reverse=True)
            # After a host's name, a dot begins its domain.
            form = rf"(?<![\w])({'|'.join(map(re.escape, names))})(?:\.[A-Za-z][\w-]*)*(?!\w)"
            words = re.sub(form, lambda found: self.known[found[1]], words)
        return _JOB.sub(lambda found: f"{found[1]} 0", words)

    def _digest(self, name: str) -> str:
        return hashlib.sha256(f"{self.salt}\0{name}".encode()).hexdigest()


def table(rows: pa.Table, names: Names) -> pa.Table:
    """Return the same numbers, with the names of nodes and GPUs replaced."""
    of = {
        "cluster": lambda name: names.word("cluster", name),
        "node": lambda name: names.word("node", name),
        "uuid": names.uuid,
    }
    for number, tag in enumerate(rows.column_names):
        if tag in of:
            coded = rows[tag].combine_chunks().dictionary_encode()
            words = [of[tag](name) for name in coded.dictionary.to_pylist()]
            rows = rows.set_column(number, tag, pa.array(words, pa.string()).take(coded.indices))
    return rows


def inventory(one: Inventory, names: Names) -> Inventory:
    """Return a node's inventory without names or serial numbers."""

    def gpu(it: GpuIdentity) -> GpuIdentity:
        serial = names.word("serial", it.serial)
        domain = names.word("domain", it.fabric_cluster)
        return replace(it, uuid=names.uuid(it.uuid), serial=serial, fabric_cluster=domain)

    def addresses(them: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.word("address", it) or "" for it in them)

    def port(it: PortIdentity) -> PortIdentity:
        return replace(
            it,
            switch=names.word("switch", it.switch),
            addresses=addresses(it.addresses),
            waits_for=addresses(it.waits_for),
        )

    return replace(
        one,
        subject=names.subject(one.subject),
        boot=names.word("boot", one.boot) or "",
        rack=names.word("rack", one.rack),
        gpus=tuple(map(gpu, one.gpus)),
        ports=tuple(map(port, one.ports)),
        missing={names.uuid(uuid): since for uuid, since in one.missing.items()},
    )


def allocation(one: Allocation, names: Names) -> Allocation:
    """Return an allocation with its holder and the other names replaced."""
    return replace(
        one,
        subject=names.subject(one.subject),
        holder=replace(one.holder, name=names.word("held", str(one.holder)) or ""),
        user=names.word("user", one.user),
        partition=names.word("partition", one.partition),
        account=names.word("account", one.account),
        array=None,
        pod=names.word("pod", one.pod),
        place=names.word("place", one.place),
        part=one.part and names.word("part", one.part),
    )


def events(found: Iterable[Event], names: Names) -> list[Event]:
    """Return events with messages free of names; hash everything else first."""
    made = []
    for one in found:
        said = names.text(one.message) if one.kind in _TOLD else ""
        id_ = names.word("event", one.id) or ""
        # A recording's tables have no column for ranks.
        subject = names.subject(one.subject)
        made.append(replace(one, subject=subject, id=id_, message=said, collectives=()))
    return made
