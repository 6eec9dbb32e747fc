"""The data that a vendor's support asks for to replace a GPU, gathered before anybody resets it."""

from collections.abc import Iterator

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Event, EventKind, Evidence, Finding, GpuIdentity, Severity, Subject

from ..window.window import Window

# NVIDIA's support takes no case without this log, and a reset or a reboot loses its content.
LOG_COMMAND = "nvidia-bug-report.sh"
# The last few raw lines of a storm say as much as all of them.
_LINES = 5
_KINDS = (EventKind.XID, EventKind.SXID, EventKind.PCIE_ERROR)


def case(window: Window, finding: Finding) -> tuple[Evidence, ...]:
    """Return evidence for a critical hardware fault: GPU identity, kernel lines, what to collect.

    Empty for any other fault. Unknown values are left out.
    """
    row = FAULTS.get(finding.fault)
    if finding.severity is not Severity.CRITICAL or row is None or not row.of_maker:
        return ()
    subject = finding.subject
    told: list[Evidence] = []
    if subject.kind == "gpu":
        told += [
            Evidence(name=name, value=value, detail=True)
            for name, value in _identity(_of(window, subject))
        ]
    told += [
        Evidence(name="kernel", value=f"{moment(event.at)}: {event.message}", detail=True)
        for event in _kernel_lines(window, subject)
    ]
    told_of = window.node_events(subject.of_node(), EventKind.LOGS)
    logs = [event.message for event in told_of if event.at >= finding.since]
    if logs:
        # The log is told at the GPU that failed first, and covers the whole node.
        told.append(Evidence(name="logs", value=f"{subject.node}: {logs[-1]}", detail=True))
    before = f"{LOG_COMMAND} on {subject.node}, as root"
    return (*told, Evidence(name="collect before any reset", value=before, detail=True))


def _of(window: Window, gpu: Subject) -> GpuIdentity | None:
    inventory = window.inventories.get(gpu.of_node().key)
    gpus = () if inventory is None else inventory.gpus
    return next((known for known in gpus if known.uuid == gpu.gpu), None)


def _identity(gpu: GpuIdentity | None) -> Iterator[tuple[str, str]]:
    if gpu is None:
        return
    named = {
        "model": gpu.model,
        "serial": gpu.serial,
        "part number": gpu.part_number,
        "slot": gpu.pci_address,
        "VBIOS": gpu.vbios,
        "InfoROM": gpu.inforom,
    }
    yield from ((name, value) for name, value in named.items() if value)


def _kernel_lines(window: Window, subject: Subject) -> list[Event]:
    """Return the last few kernel lines about the subject, oldest first."""
    events = [
        event
        for event in window.node_events(subject.of_node(), *_KINDS)
        if event.message and event.subject == subject
    ]
    return events[-_LINES:]
