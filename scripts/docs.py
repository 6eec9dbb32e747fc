"""Write the tables in `docs/` from the code: metrics, settings, faults, the life of an incident.

`python -m scripts.docs` writes them; `python -m scripts.docs --check` names those that differ.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from itertools import chain
from pathlib import Path

from analyzer.correlation.all_detectors import DETECTORS
from evaluation import healthy_jobs, healthy_network, jobs, network, slow
from evaluation.holders import page as holders_page
from evaluation.holders import play as holders
from evaluation.holders import underuse
from evaluation.job_section import section as steps_section
from evaluation.job_section import sound_section
from evaluation.page import page
from evaluation.plays import read
from gpuvigil.config import RECEIVERS, ROUTING, Config, PriceSettings, ReportSettings
from gpuvigil.faults import FAULTS, Described, Fault, Proof, xids
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.node_check_faults import NODE_FAULTS
from gpuvigil.faults.sxids import sxids
from gpuvigil.faults.symptoms import SLOWDOWNS, SYMPTOMS
from gpuvigil.lifecycle import diagram
from gpuvigil.metrics import EXPORTED, Metric, Seen
from scripts import benchmarks_page, fleet_page, hardware_page, month_page, scaling_page
from scripts.commits import forget_lost, is_whole
from scripts.figures import Figures
from simulator.faults import KINDS

ROOT = Path(__file__).parent.parent


def metrics() -> Iterator[str]:
    """Yield the catalogue of metrics, a table per measurement."""
    yield "# Metrics"
    yield ""
    yield "Every number that gpuvigil collects, written from `gpuvigil/metrics/` by `make docs`."
    yield "A value that was not measured is absent, never 0. Counters only grow: resets are bridged by the collector."
    yield ""
    yield from provenance()
    for measurement in EXPORTED:
        yield ""
        yield f"## `{measurement.name}`"
        yield ""
        tags = ", ".join(f"`{tag}`" for tag in measurement.tags)
        yield f"{measurement.sentence} Tags: {tags}."
        yield ""
        yield "| field | kind | read from | used by | seen | Prometheus | DCGM | meaning |"
        yield "|---|---|---|---|---|---|---|---|"
        for metric in measurement.metrics:
            dcgm = f"`{metric.dcgm}`" if metric.dcgm else ""
            yield (
                f"| `{metric.name}` | {metric.kind.value} | {metric.source} | {metric.used_by} "
                f"| {seen(metric)} | `{metric.prometheus}` | {dcgm} | {metric.sentence} |"
            )


def provenance() -> Iterator[str]:
    """Yield how many fields have been read from which kind of source."""
    every = [metric for measurement in EXPORTED for metric in measurement.metrics]
    counts = {kind: sum(1 for metric in every if metric.seen is kind) for kind in Seen}
    sources = sorted({metric.seen_in for metric in every if metric.seen_in})
    yield f"Of {len(every)} fields, {counts[Seen.HARDWARE]} have been **read on hardware** (hosts and Ethernet ports),"
    yield f"{counts[Seen.FIXTURE]} only from a **fixture** in the form that a source describes ({', '.join(f'`{it}`' for it in sources)}), and"
    yield f"{counts[Seen.NEVER]} were **never seen** by any test: their numbers in the driver's header are all that is known."
    unread = sum(1 for metric in every if metric.used_by.startswith("to come"))
    yield f"{unread} fields are read by nobody but `/metrics` and who asks the store: those *used by* what is to come."
    yield "**No value here has been read from a real NVIDIA GPU yet.** `nvml.h` is NVIDIA's header, API version 13, which the fake"
    yield "driver library of the tests follows; `sysfs-...` the Linux kernel's ABI documentation; `linux-qdisc` its `include/uapi/linux/gen_stats.h`, `linux-tcp-info` its `tcp.h` there, `linux-iostats` its Documentation/admin-guide/iostats.rst, `linux-thermal` its page *Intel thermal throttle events reporting*; `mlx5-counters` its documentation of that driver's; `vllm-triton-metrics` the servers' documentation (`tests/fixtures/inference`)."


def seen(metric: Metric) -> str:
    """Return a metric's mark for how it has been seen."""
    return f"fixture from {metric.seen_in}" if metric.seen is Seen.FIXTURE else metric.seen.value


def settings() -> Iterator[str]:
    """Yield every setting with its default."""
    yield "# Settings"
    yield ""
    yield "One TOML file, named with `--config`; written from `gpuvigil/config/settings.py`, `integrations.py`, `people.py` and `channels.py` beside it by `make docs`. Durations are seconds."
    yield "`GPUVIGIL_<SECTION>_<KEY>` in the environment wins over the file, for example `GPUVIGIL_HUB_PORT=9000`; a list of texts or numbers has commas in it: `GPUVIGIL_ANALYZER_XID_OVERRIDES=63=warning,45=ignore`."
    yield "An unknown key, a wrong type or a secret file that cannot be read is one line and exit code 2."
    yield "Relative paths are relative to the file. `gpuvigil up` uses shorter ticks (1 s) and writes the file it runs with into its state directory."
    for section in fields(Config):
        found = getattr(Config(), section.name)
        if isinstance(found, tuple):  # a list of tables, which follows
            continue
        yield ""
        yield f"## `[{section.name}]`"
        yield ""
        yield from setting_rows(type(found))
    for key, receiver in {**ROUTING, **RECEIVERS}.items():
        yield ""
        yield f"## `[[alerts.{key}]]`"
        yield ""
        yield from setting_rows(receiver)

    yield ""
    yield "## `[[cost.prices]]`"
    yield ""
    yield from setting_rows(PriceSettings)
    yield ""
    yield "## `[[reports]]`"
    yield ""
    yield from setting_rows(ReportSettings)


def setting_rows(kind: type) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for setting in fields(kind):
        default = getattr(kind(), setting.name)
        yield f"| `{setting.name}` | {_as_toml(default)} | {setting.metadata['text']} |"


def _as_toml(default: object) -> str:
    """Return a default as it could stand in the file; empty for an empty one."""
    if default in {None, "", ()}:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def faults() -> Iterator[str]:
    """Yield the table of faults, and the Xid table."""
    yield "# Faults"
    yield ""
    yield "What gpuvigil can find, written from `gpuvigil/faults/` by `make docs`. Severity is about people: critical wakes"
    yield "somebody, warning is for working hours, info goes to the digest. *Inferred* faults are concluded from what others do or from what is"
    yield "absent: no node is drained for one without a person. Those *on trial* are in the digest until they were [right at the site](alerts.md#verdicts-on-trial). *Stops* says whom a fault keeps from computing, so that he is called neither idle nor"
    yield "inefficient; a critical fault of any row stops who has its GPU or node. *Rarer by*: the setting of `[analyzer]` that makes it rarer when it is raised."
    yield ""
    yield "| fault | severity | what | first action | stops | rarer by | where the rule comes from |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(fault_row, FAULTS.values())
    yield from chain(detector_rows(), condition_rows(), symptom_rows())
    yield "## What one look finds"
    yield ""
    yield "Beside the symptoms above, and without any history: `gpuvigil check` ([what it is for](check.md)), from `gpuvigil/faults/node_check_faults.py`."
    yield ""
    yield "| fault | severity | what | first action | where the rule comes from |"
    yield "|---|---|---|---|---|"
    yield from fault_rows(NODE_FAULTS.values())
    yield ""
    yield "## Xid codes"
    yield ""
    yield "From `gpuvigil/data/xid.csv`, a source per row. *Sticky* stands until a cure is seen (the GPU back, a reset, a reboot);"
    yield "*passing* ends some time after it was last seen."
    yield ""
    yield "| Xid | name | severity | stands | meaning | first action | source |"
    yield "|---|---|---|---|---|---|---|"
    for xid in xids().values():
        yield (
            f"| {xid.code} | {xid.mnemonic} | {xid.severity.value} | {xid.scope.value} "
            f"| {xid.summary} | {xid.action} | {xid.source} |"
        )
    yield ""
    yield from sxid_rows()


def detector_rows() -> Iterator[str]:
    """Yield the detectors."""
    yield ""
    yield "## Detectors"
    yield ""
    yield "A detector is a module of `analyzer/detectors/`; what those see that take more than a sentence stands in [detectors](detectors.md)."
    yield ""
    yield "| detector | finds | looks for | where the rule comes from |"
    yield "|---|---|---|---|"
    for one in DETECTORS:
        finds = ", ".join(f"`{fault}`" for fault in one.faults)
        yield f"| `{one.name}` | {finds} | {one.sentence} | {one.source} |"


def condition_rows() -> Iterator[str]:
    """Yield the conditions: signs of faults that have several."""
    yield ""
    yield "## Conditions"
    yield ""
    yield "What speaks for a fault that has several signs, from `gpuvigil/faults/conditions.py`; an incident says the gravest of them."
    yield ""
    yield "| condition | severity | what | first action | where the rule comes from |"
    yield "|---|---|---|---|---|"
    yield from fault_rows(CONDITIONS.values())
    yield ""


def symptom_rows() -> Iterator[str]:
    """Yield the symptoms: what the node check and the detectors judge by the same limits."""
    yield "## Symptoms"
    yield ""
    yield "What `gpuvigil check` and the detectors both judge, each by one limit, from `gpuvigil/faults/symptoms.py`. The rows above say what each means"
    yield "and what to do. A detector also asks that it lasts or was seen more than once; one look cannot know that of what slows a GPU, and calls it less grave."
    yield ""
    yield "| symptom | what | reads | limit | severity | at one look | where the limit comes from |"
    yield "|---|---|---|---|---|---|---|"
    for one in SYMPTOMS.values():
        reads = ", ".join(f"`{name}`" for name in one.reads)
        grave = one.told.severity.value
        yield (
            f"| `{one.key}` | {one.told.title} | {reads} | {one.limit} | {grave} | {grave} "
            f"| {one.source} |"
        )
    for row in SLOWDOWNS.values():
        yield (
            f"| `{row.key}` | {row.told.title} | `{row.counter}`; at one look bit 0x{row.bit:x} of"
            f" `clock_event_reasons` | {row.limit} | {row.told.severity.value} | {row.at_a_look.value} "
            f"| {row.source} |"
        )
    yield ""


def sxid_rows() -> Iterator[str]:
    """Yield the SXid table."""
    yield "## SXid codes"
    yield ""
    yield f"From `gpuvigil/data/sxid.csv`, {len(sxids())} codes with a source per row. What the Fabric Manager guide calls always fatal is critical"
    yield "and stands until the node is booted; potentially fatal is a warning, the rest info, and both pass. Where the guide is silent the class"
    yield "is inferred from the driver's name of the code, and the source says so."
    yield ""
    yield "| SXid | name | severity | part | meaning | source |"
    yield "|---|---|---|---|---|---|"
    for row in sxids().values():
        yield (
            f"| {row.code} | {row.mnemonic} | {row.severity.value} | {row.part} | {row.summary} "
            f"| {row.source} |"
        )


def fault_row(fault: Fault) -> str:
    tuned = f"`{fault.tuned_by}`" if fault.tuned_by else ""
    marks = ("inferred", fault.inferred), (Proof.ON_TRIAL.value, fault.proof is Proof.ON_TRIAL)
    said = ", ".join(word for word, holds in marks if holds)
    return (
        f"| `{fault.key}` | {fault.severity.value} | {fault.title} | {fault.action} | {fault.stops.value} "
        f"| {tuned} | {fault.source}{f' ({said})' if said else ''} |"
    )


def fault_rows(faults: Iterable[Described]) -> Iterator[str]:
    for fault in faults:
        yield (
            f"| `{fault.key}` | {fault.severity.value} | {fault.title} | {fault.action} "
            f"| {fault.source} |"
        )


def lifecycle() -> Iterator[str]:
    """Yield the state diagram of incidents."""
    yield "# The life of an incident"
    yield ""
    yield "Drawn from the table in `gpuvigil/lifecycle.py` by `make docs`. A pair of state and signal that is not here is an error."
    yield ""
    yield "```mermaid"
    yield diagram()
    yield "```"


def simulated_faults() -> Iterator[str]:
    """Yield the faults that `gpuvigil inject` knows."""
    yield "# Simulated faults"
    yield ""
    yield "What `gpuvigil inject` can make happen, written from `simulator/faults.py` by `make docs`. Each changes only"
    yield "what the simulated sensors read; everything after them is the product. `--clear` ends one, `--clear all` every one."
    yield ""
    yield "While one of these keeps a rank from its work (a GPU that is lost or hangs, a memory error that ends it, a port that a job over several nodes needs),"
    yield "the other ranks of its training spin, and make no step."
    yield ""
    yield "| fault | place | what the sensors read |"
    yield "|---|---|---|"
    for name, kind in KINDS.items():
        yield f"| `{name}` | {kind.target.value} | {kind.sentence} |"


def accuracy() -> Iterator[str]:
    """Yield how well faults are found, from the committed plays."""
    yield from page(read())
    yield ""
    yield from slow.section(json.loads(slow.RESULT.read_text()))
    yield ""
    yield from network.section(json.loads(network.RESULT.read_text()))
    yield ""
    if healthy_network.RESULT.exists():
        yield from healthy_network.section(json.loads(healthy_network.RESULT.read_text()))
        yield ""
    yield from steps_section(json.loads(jobs.RESULT.read_text()))
    yield ""
    sound = healthy_jobs.RESULT
    yield from sound_section(json.loads(sound.read_text()) if sound.exists() else None)


def idle_accuracy() -> Iterator[str]:
    """Yield how well idle holders and the causes of jobs' ends are named, from the committed results."""
    yield "# Accuracy of idle notices and of why jobs ended"
    yield ""
    yield from holders_page.section(holders.read())
    yield ""
    kept = underuse.RESULT
    yield from holders_page.of_underuse(json.loads(kept.read_text()) if kept.exists() else None)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "metrics.md": metrics,
    "settings.md": settings,
    "faults.md": faults,
    "lifecycle.md": lifecycle,
    "simulated-faults.md": simulated_faults,
    "benchmarks.md": lambda: benchmarks_page.page(Figures()),
    "hardware.md": hardware_page.page,
    "scaling.md": lambda: scaling_page.page(Figures()),
    "fleet-tables.md": lambda: fleet_page.page(Figures()),
    "accuracy.md": accuracy,
    "idle-accuracy.md": idle_accuracy,
    "month.md": month_page.page,
}


def written() -> dict[Path, str]:
    """Return every generated page with its text."""
    return {ROOT / "docs" / name: "\n".join(write()) + "\n" for name, write in PAGES.items()}


def main() -> int:
    """Write the pages, or name those that differ from the code."""
    if "--check" not in sys.argv and is_whole():
        # Fingerprints bind plays to code, but a rebase removes their commits.
        for file in sorted((ROOT / "evaluation").glob("*.json")):
            forget_lost(file)
    different = [
        path for path, text in written().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" in sys.argv:
        for path in different:
            print(f"{path.relative_to(ROOT)} differs from the code: run make docs")
        return 1 if different else 0
    for path in different:
        path.write_text(written()[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
