"""Names of a site as words that say nothing: the same name is always the same word."""

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

# Events whose words the kernel or gpuvigil chose; others name files, mounts and commands.
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
    """Hashes names with a salt: without it nobody can try names until one fits."""

    salt: str
    known: dict[str, str] = field(default_factory=dict)

    def word(self, kind: str, name: str | None) -> str | None:
        """`node-3f2a91c07e`; None stays None."""
        if not name:
            return name
        made = f"{kind}-{self._digest(name)[:10]}"
        self.known.setdefault(name, made)
        if kind == "node" and "." in name:
            self.known.setdefault(name.partition(".")[0], made)
        return made

    def uuid(self, name: str) -> str:
        """In the form of a UUID."""
        hexes = self._digest(name)
        parts = (hexes[:8], hexes[8:12], hexes[12:16], hexes[16:20], hexes[20:32])
        made = f"GPU-{'-'.join(parts)}"
        self.known.setdefault(name, made)
        if name.startswith(("GPU-", "MIG-")):
            self.known.setdefault(name[4:], made[4:])
        return made

    def subject(self, one: Subject) -> Subject:
        """The same part of a node that is called otherwise."""
        return replace(
            one,
            cluster=self.word("cluster", one.cluster) or "",
            node=self.word("node", one.node) or "",
            gpu=None if one.gpu is None else self.uuid(one.gpu),
        )

    def text(self, words: str) -> str:
        """Words without the names that were hashed before, and without those of processes."""
        words = _PROCESS.sub(r"process (pid \1)", words)
        if self.known:
            names = sorted(self.known, key=len, reverse=True)
            # What follows a host's name after a dot is its domain.
            form = rf"(?<![\w])({'|'.join(map(re.escape, names))})(?:\.[A-Za-z][\w-]*)*(?!\w)"
            words = re.sub(form, lambda found: self.known[found[1]], words)
        return _JOB.sub(lambda found: f"{found[1]} 0", words)

    def _digest(self, name: str) -> str:
        return hashlib.sha256(f"{self.salt}\0{name}".encode()).hexdigest()


def table(rows: pa.Table, names: Names) -> pa.Table:
    """The same numbers of nodes and GPUs that are called otherwise."""
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
    """What a node has, without a name or a serial number."""

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
    """Who held a GPU: somebody, with some job."""
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
    """What happened, in words without names; hash everything else first."""
    made = []
    for one in found:
        said = names.text(one.message) if one.kind in _TOLD else ""
        id_ = names.word("event", one.id) or ""
        # A recording's tables have no place for ranks.
        subject = names.subject(one.subject)
        made.append(replace(one, subject=subject, id=id_, message=said, collectives=()))
    return made
