"""Findings as people read them: which GPU, what, on which evidence, what to do first."""

import json
from collections.abc import Sequence

from gpuvigil.clock import to_text
from gpuvigil.faults import with_release
from gpuvigil.model import Finding, GpuIdentity, Severity
from gpuvigil.model.record import plain

from .facts import Facts
from .rules import worst


def place(facts: Facts, finding: Finding) -> str:
    """`GPU 3 (0000:9b:00.0, GPU-7f3a...)`, `port mlx5_0/1`, or `node`.

    A GPU that the driver does not list has the number that it had, `former` when another has it now.
    """
    subject = finding.subject
    if subject.device is not None:
        return f"port {subject.device}/{subject.port}"
    if subject.gpu is None:
        return "node"
    listed = [gpu.identity for gpu in facts.gpus.values() if gpu.identity is not None]
    for gpu in (*listed, *facts.known.gpus):
        if gpu.uuid == subject.gpu:
            return (
                f"{_numbered(gpu, listed)} ({', '.join(filter(None, (gpu.pci_address, gpu.uuid)))})"
            )
    return f"GPU {subject.gpu}"


def _numbered(gpu: GpuIdentity, listed: Sequence[GpuIdentity]) -> str:
    if gpu.index is None:
        return "GPU"
    another = gpu not in listed and any(other.index == gpu.index for other in listed)
    return f"{'former ' if another else ''}GPU {gpu.index}"


def short_place(facts: Facts, finding: Finding) -> str:
    """`GPU 3`, by its PCI address where it has no index now; `port mlx5_0/1`, or `node`."""
    name, _, rest = place(facts, finding).partition(" (")
    return name if name != "GPU" else f"GPU {rest.partition(',')[0].rstrip(')')}"


def claim(facts: Facts, finding: Finding) -> str:
    """What is wrong where, with its evidence."""
    evidence = ", ".join(item.text for item in finding.evidence)
    return f"{place(facts, finding)}: {finding.title} [{evidence}]"


def line(facts: Facts, finding: Finding) -> str:
    """One finding, and the first thing to do."""
    return f"{finding.severity.value:<8} {claim(facts, finding)} -> {action(finding)}"


def action(finding: Finding) -> str:
    """The first thing to do: a GPU can be reset only when the collector has let go of it."""
    return with_release(finding.action)


def counts(found: Sequence[Finding]) -> str:
    """`1 critical, 2 warning`; empty when there is nothing."""
    numbers = [(sum(f.severity is s for f in found), s.value) for s in Severity]
    return ", ".join(f"{number} {name}" for number, name in numbers if number)


def summary(facts: Facts, found: Sequence[Finding]) -> str:
    """One line: how many GPUs and ports were looked at, and how that went."""
    answered = sum(gpu.values is not None for gpu in facts.gpus.values())
    ports = len(facts.ports or ())
    seen = f"{answered} GPU{'' if answered == 1 else 's'}"
    seen += f" and {ports} port{'' if ports == 1 else 's'} read"
    return f"{counts(found) or 'nothing found'}; {seen} in {facts.waited_seconds:.2f} s"


def unread(facts: Facts) -> list[str]:
    """A line for each part that could not be looked at."""
    return [f"not looked at: {part}: {why}" for part, why in sorted(facts.unread.items())]


def as_json(facts: Facts, found: Sequence[Finding]) -> str:
    """The whole as one JSON object."""
    severity = worst(list(found))
    value = {
        "node": facts.node,
        "cluster": facts.cluster,
        "at": to_text(facts.at),
        "result": "ok" if severity is None else severity.value,
        "seconds": round(facts.waited_seconds, 3),
        "driver": None if facts.driver is None else facts.driver.version,
        "gpus": sum(gpu.values is not None for gpu in facts.gpus.values()),
        "ports": None if facts.ports is None else len(facts.ports),
        "findings": [_finding(facts, finding) for finding in found],
        "unread": facts.unread,
    }
    return json.dumps(value, indent=2)


def _finding(facts: Facts, finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "fault": finding.fault,
        "subject": finding.subject.key,
        "place": place(facts, finding),
        "title": finding.title,
        "certain": finding.certain,
        "evidence": [plain(item) for item in finding.evidence],
        "action": action(finding),
        "source": finding.source,
    }
