"""Findings as people read them: which GPU, what, on which evidence, what to do first."""

import json
from collections.abc import Sequence

from gpuvigil.clock import to_text
from gpuvigil.faults import with_release
from gpuvigil.model import Finding, GpuIdentity, Severity
from gpuvigil.plain import plain

from .driver_silence import unjudged
from .facts import Facts

OK, UNKNOWN = "ok", "unknown"


def place(facts: Facts, finding: Finding) -> str:
    """Return `GPU 3 (0000:9b:00.0, GPU-7f3a...)`, `port mlx5_0/1`, or `node`.

    A GPU that the driver does not list keeps its last index, with `former` if another has it now.
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
    """Return `GPU 3`, or its PCI address where it has no index now; `port mlx5_0/1`, or `node`."""
    name, _, rest = place(facts, finding).partition(" (")
    return name if name != "GPU" else f"GPU {rest.partition(',')[0].rstrip(')')}"


def claim(facts: Facts, finding: Finding) -> str:
    """Return what is wrong where, with its evidence."""
    evidence = ", ".join(item.text for item in finding.evidence)
    return f"{place(facts, finding)}: {finding.title} [{evidence}]"


def line(facts: Facts, finding: Finding) -> str:
    """Return one finding with the first thing to do."""
    unsure = "" if finding.certain else " (not certain)"
    return f"{finding.severity.value:<8} {claim(facts, finding)}{unsure} -> {action(finding)}"


def action(finding: Finding) -> str:
    """Return the first thing to do: a GPU can be reset only after the collector has released it."""
    return with_release(finding.action)


def counts(found: Sequence[Finding]) -> str:
    """Return `1 critical, 2 warning`; empty when there is nothing."""
    numbers = [(sum(f.severity is s for f in found), s.value) for s in Severity]
    return ", ".join(f"{number} {name}" for number, name in numbers if number)


def summary(facts: Facts, found: Sequence[Finding]) -> str:
    """Return one line: how many GPUs and ports were read, and the outcome."""
    answered = sum(gpu.values is not None for gpu in facts.gpus.values())
    ports = len(facts.ports or ())
    seen = f"{answered} GPU{'' if answered == 1 else 's'}"
    seen += f" and {ports} port{'' if ports == 1 else 's'} read"
    oldest = max((gpu.age_seconds for gpu in facts.gpus.values()), default=0.0)
    by = f", GPUs by the collector, {oldest:.0f} s ago" if oldest else ""
    known = result(facts, found) != UNKNOWN
    nothing = "nothing found" if known else "nothing found, and not everything could be looked at"
    return f"{counts(found) or nothing}; {seen} in {facts.waited_seconds:.2f} s{by}"


def unread(facts: Facts) -> list[str]:
    """Return a line for each part that could not be looked at or judged."""
    return [f"not looked at: {part}: {why}" for part, why in sorted(_unread(facts).items())]


def _unread(facts: Facts) -> dict[str, str]:
    return {**facts.unread, **unjudged(facts)}


def result(facts: Facts, found: Sequence[Finding]) -> str:
    """Return the worst that is known: `critical`, `warning`, `unknown`, `info` or `ok`.

    An uncertain critical finding may be over, or may only be starting up, and counts as a warning.
    Unknown: the driver or a GPU could not be looked at.
    """
    severities = {
        Severity.WARNING
        if finding.severity is Severity.CRITICAL and not finding.certain
        else finding.severity
        for finding in found
    }
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if severity in severities:
            return str(severity.value)
    if any(part == "driver" or part.startswith("GPU ") for part in _unread(facts)):
        return UNKNOWN
    return str(Severity.INFO.value) if severities else OK


def as_json(facts: Facts, found: Sequence[Finding]) -> str:
    """Return everything as one JSON object."""
    value = {
        "node": facts.node,
        "cluster": facts.cluster,
        "at": to_text(facts.at),
        "result": result(facts, found),
        "seconds": round(facts.waited_seconds, 3),
        "driver": None if facts.driver is None else facts.driver.version,
        "gpus": sum(gpu.values is not None for gpu in facts.gpus.values()),
        "ports": None if facts.ports is None else len(facts.ports),
        "findings": [_finding(facts, finding) for finding in found],
        "unread": _unread(facts),
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
