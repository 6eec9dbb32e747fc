"""The subjects of findings and records, and the vocabulary of their states."""

import re
from dataclasses import dataclass, field
from enum import Enum

# Every row, event and finding of a simulated node carries this cluster name, and a real collector
# refuses it: simulated and real data can then never be mixed up or summed.
SIMULATED_CLUSTER = "simulated"
# The same for everything that `gpuvigil selftest` makes happen: it becomes an incident like a real
# fault, and goes no further. See `gpuvigil.model.selftest_nodes`.
SELFTEST_CLUSTER = "selftest"
# Names that no site may give to a cluster of its own.
RESERVED_CLUSTERS = frozenset({SIMULATED_CLUSTER, SELFTEST_CLUSTER})

# Matches keys that need no quoting.
_PLAIN = re.compile(r"[A-Za-z0-9:._~/-]*").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The thing that something is about: a node, one of its GPUs (by UUID), or one of its ports."""

    cluster: str
    node: str
    gpu: str | None = None
    device: str | None = None
    port: str | None = None
    # Cached: a pass over a large fleet asks for very many keys.
    _key: str = field(default="", init=False, repr=False, compare=False)
    _node: "Subject | None" = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # Equal subjects have equal keys, and a string caches its hash.
        return hash(self._key or self.key)

    def __lt__(self, other: "Subject") -> bool:
        """Sort a node before its parts: a missing field comes first."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[str, ...]:
        return self.cluster, self.node, self.gpu or "", self.device or "", self.port or ""

    @property
    def kind(self) -> str:
        """`node`, `gpu` or `port`."""
        if self.gpu is not None:
            return "gpu"
        return "node" if self.device is None else "port"

    @property
    def key(self) -> str:
        """The text that names the subject everywhere: `cluster/node[/gpu/uuid | /port/device/port]`."""
        if not self._key:
            object.__setattr__(self, "_key", self._named())
        return self._key

    def _named(self) -> str:
        parts = [self.cluster, self.node]
        if self.gpu is not None:
            parts += ["gpu", self.gpu]
        elif self.device is not None:
            parts += ["port", self.device, self.port or ""]
        text = "/".join(parts)
        # Most names need no quoting.
        if _PLAIN(text) and text.count("/") == len(parts) - 1:
            return text
        from urllib.parse import quote  # noqa: PLC0415 - rarely needed, never by a node's reader

        return "/".join(quote(part, safe=":._-") for part in parts)

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER

    @property
    def marked(self) -> bool:
        """Whether the subject is the selftest's: notified to nobody and counted nowhere."""
        return self.cluster == SELFTEST_CLUSTER

    @property
    def real(self) -> bool:
        """Whether the machine exists: not simulated, and not the selftest's."""
        return self.cluster not in RESERVED_CLUSTERS

    def of_node(self) -> "Subject":
        """Return the node that this subject belongs to."""
        node = self._node
        if node is None:
            if self.gpu is None and self.device is None and self.port is None:
                return self
            node = Subject(cluster=self.cluster, node=self.node)
            object.__setattr__(self, "_node", node)
        return node

    @classmethod
    def parse(cls, key: str) -> "Subject":
        """Parse a key; raise ValueError when it names no subject."""
        parts = key.split("/")
        if "%" in key:
            from urllib.parse import unquote  # noqa: PLC0415 - as above

            parts = [unquote(part) for part in parts]
        match parts:
            case [cluster, node]:
                return cls(cluster=cluster, node=node)
            case [cluster, node, "gpu", uuid]:
                return cls(cluster=cluster, node=node, gpu=uuid)
            case [cluster, node, "port", device, port]:
                return cls(cluster=cluster, node=node, device=device, port=port)
        raise ValueError(f"{key!r} names no subject")


class Severity(str, Enum):
    """The urgency of an incident: wake up now, look in working hours, read it in the digest."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """The severity's rank; 0 is the most severe."""
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class GpuState(str, Enum):
    """The states of a GPU, which is always in exactly one of them."""

    ACTIVE = "active"
    IDLE = "idle"  # held by a process or a job, nothing computed
    FREE = "free"
    UNAVAILABLE = "unavailable"  # faulty, missing, drained, released for maintenance
    UNKNOWN = "unknown"  # no trustworthy data
