"""The files of a recording and their columns; `docs/recordings.md` has the same tables.

Telemetry has the catalogue's fields, in the units that their names give, beside columns that identify the subject
and the time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import EventKind

CLUSTER, NODE = "recorded", "node"  # for recordings that name none
SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column for the subject, the time or a record's content; telemetry files add the catalogue's fields."""

    name: str
    sentence: str
    needed: bool = False


def _columns(text: str) -> tuple[Column, ...]:
    """Parse `name[!] | sentence` lines; `!` marks a column as needed."""
    found = []
    for line in text.strip().splitlines():
        name, sentence = (word.strip() for word in line.split("|", 1))
        found.append(Column(name=name.rstrip("!"), sentence=sentence, needed=name.endswith("!")))
    return tuple(found)


_WHERE = """
at!     | When it was measured.
node    | The machine; `node` if the file has no such column.
cluster | Its cluster; `recorded` if the file has no such column.
"""
_GPU = """
uuid        | The GPU, the same in all files; without it `index` names the GPU.
index       | The GPU's number on its node.
model       | As the driver says it: `NVIDIA H100 80GB HBM3`.
pci_address | `0000:9b:00.0`: kernel lines name GPUs by it.
"""
_PORT = """
device! | `mlx5_0`.
port    | The device's port; `1` if left out.
kind    | `infiniband`, `roce`, `ethernet` or `efa`; `infiniband` if left out.
role    | `fabric`, `storage` or `management`; `fabric` if left out.
"""
_SUBJECT = """
gpu    | A GPU of the node, by UUID or index.
device | A port's device: `mlx5_0`.
port   | Its port; `1` if left out.
"""
TELEMETRY: Mapping[str, tuple[Column, ...]] = {
    "gpu": _columns(_WHERE + _GPU.strip()),
    "port": _columns(_WHERE + _PORT.strip()),
    "node": _columns(_WHERE),
    "nvlink": _columns(_WHERE + _GPU.strip() + "\nlink! | The link's number."),
}
RECORDS: Mapping[str, tuple[Column, ...]] = {
    "events": _columns(
        _WHERE
        + _SUBJECT.strip()
        + f"""
event!  | {", ".join(f"`{kind.value}`" for kind in EventKind)}.
xid     | The code of an `xid`.
sxid    | The code of an `sxid`.
count   | How often it happened since the event before; 1 if left out.
gone    | 1 where a port is down because its device left the system.
message | In words.
id      | Names the event; two rows of one id are one event.
"""
    ),
    "jobs": _columns(
        """
node          | As above.
cluster       | As above.
gpu           | A GPU of the node, by UUID or index; empty: all that the recording has.
holder!       | `job 1234`, `pod team/name` or `pid 4711`; a bare number or word is a job.
started_at!   | Since when it holds the GPU.
ended_at      | Until when; empty or `Unknown` while it does.
user          | Whose it is.
account       | Slurm's account, or the namespace.
partition     | Slurm's partition.
array         | `17_3`: the third task of the array job 17.
exit_code     | `0:0`, `1:0`, `0:9`.
pod           | `namespace/name`.
place         | The container or unit it runs in.
part          | What of the GPU is held, where it is not all of it.
began_before  | 1 where it held the GPU before it was first looked at.
"""
    ),
    "kernel": _columns(
        """
at   | When the line was written; empty where the line itself begins with its time.
node | As above.
cluster | As above.
line! | The line as the kernel, `dmesg`, syslog or `journalctl` wrote it.
"""
    ),
    "truth": _columns(
        """
node!   | The machine to act on.
cluster | As above.
gpu     | The GPU, by UUID or index, where it is one.
device  | The port's device, where it is one.
port    | Its port.
from!   | Since when something was wrong.
to      | Until when; empty: to the end of the recording.
what    | What was wrong, in words.
cause   | A key of [Faults](faults.md) or of a condition there, or `xid 79`: what an incident has to name. Empty: any will do.
affected | Other nodes that suffered from it, separated by spaces.
"""
    ),
}
FILES: Mapping[str, tuple[Column, ...]] = {**TELEMETRY, **RECORDS}
# The content of each file, in a sentence.
SENTENCES: Mapping[str, str] = {
    "gpu": "Numbers of GPUs: a row for each GPU and moment.",
    "port": "Numbers of network ports.",
    "node": "Numbers of machines.",
    "nvlink": "Numbers of single NVLinks; where `gpu` has no NVLink columns they are added up.",
    "events": "What happened once.",
    "jobs": "Who held which GPU: jobs, pods, processes.",
    "kernel": "Lines of the kernel log.",
    "truth": "What was wrong, for the judge alone.",
}


def fields(measurement: str) -> tuple[str, ...]:
    """Return the catalogue's fields of a telemetry file."""
    return tuple(metric.name for metric in MEASUREMENTS[measurement].metrics)


def names(kind: str) -> tuple[str, ...]:
    """Return all columns that a file may have."""
    own = [column.name for column in FILES[kind]]
    more = fields(kind) if kind in TELEMETRY else ()
    return tuple(dict.fromkeys([*own, *more]))


def rows() -> Iterator[str]:
    """Yield the tables of `docs/recordings.md`."""
    for kind, columns in FILES.items():
        yield f"### `{kind}`"
        yield ""
        yield SENTENCES[kind]
        yield ""
        yield "| column | needed | what |"
        yield "|---|---|---|"
        for column in columns:
            yield f"| `{column.name}` | {'yes' if column.needed else ''} | {column.sentence} |"
        if kind in TELEMETRY:
            yield f"| *field* | | Any field of [`{kind}`](metrics.md), in the unit of its name. |"
        yield ""
