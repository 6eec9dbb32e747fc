"""The rules of the node check: pure functions from facts to findings, without history."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gpuvigil.faults import FAULTS, XID_FAULTS, Described, NodeCheckSign
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.node_check_faults import NODE_FAULTS
from gpuvigil.faults.sxids import Sxid
from gpuvigil.faults.symptoms import (
    NOUVEAU,
    NVLINKS_DOWN,
    PORT_DOWN,
    STARTS_WITHIN_SECONDS,
    without_driver,
)
from gpuvigil.model import Finding, GpuIdentity, Subject, Unmeasured

from ..sensors.pci import PciGpu, same_form
from . import driver_silence
from .evidence import Item, shown
from .facts import Facts, GpuFacts
from .gpu_rules import judge
from .kernel_rules import active_reports

DETECTOR = "check"
# NVML_ERROR_LIB_RM_VERSION_MISMATCH
_MISMATCH = 18

# The faults that one look shows as well as a history would; the rest are in `CONDITIONS`, which
# the detectors judge by the same symptoms, and in `NODE_FAULTS`.
_SEEN = {row.look: row.key for row in FAULTS.values() if row.look is not None}
# Faults of what is still being started on a freshly booted node are no reason to drain it.
_STARTED_AT_BOOT = frozenset(
    {_SEEN[NodeCheckSign.NO_DRIVER], "driver_unusable", _SEEN[NodeCheckSign.NO_FABRIC]}
)


def findings(facts: Facts) -> list[Finding]:
    """Return everything that is wrong, the most severe first."""
    booting = facts.uptime_seconds < STARTS_WITHIN_SECONDS
    found = [
        replace(finding, certain=False)
        if booting and finding.fault in _STARTED_AT_BOOT
        else finding
        for rule in RULES
        for finding in rule(facts)
    ]
    return sorted(found, key=lambda f: (f.severity.rank, not f.certain))


def _finding(
    facts: Facts,
    key: str,
    evidence: Mapping[Item, str],
    gpu: str | None = None,
    *,
    certain: bool = True,
) -> Finding:
    fault: Described = FAULTS.get(key) or CONDITIONS.get(key) or NODE_FAULTS[key]
    return Finding(
        fault=key,
        subject=Subject(cluster=facts.cluster, node=facts.node, gpu=gpu),
        severity=fault.severity,
        since=facts.at,
        evidence=shown(evidence),
        detector=DETECTOR,
        action=fault.action,
        source=fault.source,
        certain=certain,
        title=fault.title,
    )


def driver(facts: Facts) -> Iterator[Finding]:
    """Yield a driver that does not answer, is absent although GPUs are present, or is unusable."""
    expected = max(len(expected_gpus(facts)), facts.gpus_wanted or 0)
    if not facts.wants_gpus:
        return
    if facts.is_released:
        yield _finding(
            facts, "driver_released", {Item.UNTIL: f"{facts.known.released_until:%H:%M} UTC"}
        )
        return
    if facts.driver is None:
        yield from _silent_driver(facts)
        return
    if facts.driver.failure and facts.driver.code == _MISMATCH:
        yield _finding(facts, "driver_mismatch", {Item.NVML: facts.driver.failure})
    elif facts.driver.failure and expected:
        evidence = {Item.GPUS_EXPECTED: str(expected), Item.NVML: facts.driver.failure}
        if facts.driver.reason is Unmeasured.DRIVER_NOT_LOADED:
            yield _driver_not_loaded(facts, evidence)
        else:
            yield _finding(facts, "driver_unusable", evidence)


def _driver_not_loaded(facts: Facts, evidence: Mapping[Item, str]) -> Finding:
    nouveau = any(gpu.driver == NOUVEAU for gpu in facts.pci or ())
    held = {Item.HELD_BY: NOUVEAU} if nouveau else {}
    expected = bool(facts.known.gpus or facts.gpus_wanted or facts.expects_gpus)
    severity, action = without_driver(expected=expected, nouveau=nouveau)
    found = _finding(facts, _SEEN[NodeCheckSign.NO_DRIVER], {**evidence, **held})
    return replace(found, severity=severity, action=action)


def unsupported(facts: Facts) -> Iterator[Finding]:
    """Yield GPUs of other vendors, so that nobody takes them for monitored."""
    for gpu in facts.unsupported:
        evidence = {Item.MAKER: gpu.vendor, Item.DRIVER: gpu.driver or "none"}
        yield _finding(facts, "gpu_unsupported", evidence, gpu.address)


def _silent_driver(facts: Facts) -> Iterator[Finding]:
    silent = driver_silence.of_driver(facts)
    if silent is not None:
        evidence = driver_silence.evidence(facts)
        yield _finding(
            facts,
            _SEEN[NodeCheckSign.DRIVER_HANGS],
            evidence,
            certain=driver_silence.is_certain(silent),
        )


def expected_gpus(facts: Facts) -> dict[str, GpuIdentity | PciGpu]:
    """Return GPUs that the driver should list, by PCI address (or UUID): remembered, or on the bus.

    A GPU that was given to a virtual machine is not the driver's. A container sees the whole bus,
    so there only what is remembered counts.
    """
    bus = {gpu.address: gpu for gpu in facts.pci or ()}
    expected: dict[str, GpuIdentity | PciGpu] = {}
    if not facts.container:
        expected |= {address: gpu for address, gpu in bus.items() if gpu.for_nvidia}
    for gpu in facts.known.gpus:
        address = same_form(gpu.pci_address) if gpu.pci_address else gpu.uuid
        if address not in bus or bus[address].for_nvidia:
            expected[address] = gpu
    return expected


def missing_gpus(facts: Facts) -> Iterator[Finding]:
    """Yield GPUs that are on the bus, or were here, and that the driver does not list."""
    if facts.driver is None or facts.driver.failure or not facts.wants_gpus:
        return
    if any(gpu.identity is None for gpu in facts.listed):
        # A listed GPU has not identified itself yet: it must not be taken for missing.
        return
    on_bus = {gpu.address for gpu in facts.pci or ()}
    for address, uuid in unclaimed(facts).items():
        evidence = {Item.PCI_ADDRESS: address, Item.GPUS_LISTED: f"{facts.driver.gpus} GPUs"}
        if uuid in facts.known.missing_since:
            evidence[Item.MISSING_SINCE] = f"{facts.known.missing_since[uuid]:%Y-%m-%d %H:%M} UTC"
        if facts.pci is not None:
            evidence[Item.ON_PCI_BUS] = "yes" if address in on_bus else "no"
        yield _finding(facts, _SEEN[NodeCheckSign.GPU_GONE], evidence, uuid or address)


def too_few_gpus(facts: Facts) -> Iterator[Finding]:
    """Yield a finding when there are fewer GPUs than wanted, and it is not known which are missing."""
    wanted = facts.gpus_wanted
    if wanted is None or facts.driver is None or facts.driver.failure or not facts.wants_gpus:
        return
    named = 0 if any(gpu.identity is None for gpu in facts.listed) else len(unclaimed(facts))
    if facts.driver.gpus + named < wanted:
        yield _finding(facts, "too_few_gpus", {Item.GPUS: f"{facts.driver.gpus} of {wanted}"})


def unclaimed(facts: Facts) -> dict[str, str | None]:
    """Return PCI addresses of expected GPUs that the driver does not identify, with known UUIDs."""
    identities = [gpu.identity for gpu in facts.gpus.values() if gpu.identity is not None]
    uuids = {gpu.uuid for gpu in identities}
    addresses = {same_form(gpu.pci_address) for gpu in identities if gpu.pci_address}
    named = {
        address: gpu.uuid if isinstance(gpu, GpuIdentity) else None
        for address, gpu in sorted(expected_gpus(facts).items())
    }
    return {a: uuid for a, uuid in named.items() if a not in addresses and uuid not in uuids}


def gpus(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with each GPU that the driver lists."""
    for gpu in facts.listed:
        if f"GPU {gpu.index}" in facts.unread:
            continue
        if not gpu.answered:
            yield from _silent_gpu(facts, gpu)
        elif gpu.values is None:
            lost = gpu.reason is Unmeasured.LOST
            key = _SEEN[NodeCheckSign.GPU_GONE] if lost else "gpu_unreadable"
            yield _finding(facts, key, {Item.NVML: gpu.failure}, subject_of(facts, gpu))
        else:
            for claim in judge(gpu.values):
                found = _finding(facts, claim.fault, claim.evidence, subject_of(facts, gpu))
                yield replace(
                    found,
                    severity=claim.severity or found.severity,
                    action=claim.action or found.action,
                )


def _silent_gpu(facts: Facts, gpu: GpuFacts) -> Iterator[Finding]:
    silent = driver_silence.of_gpu(facts, gpu.index)
    if silent is not None:
        evidence = driver_silence.evidence(facts, gpu.index)
        certain = driver_silence.is_certain(silent)
        yield _finding(
            facts, _SEEN[NodeCheckSign.GPU_HANGS], evidence, subject_of(facts, gpu), certain=certain
        )


def subject_of(facts: Facts, gpu: GpuFacts) -> str:
    """Return the GPU's UUID.

    Without one: the only missing GPU that it can be, else the GPU that had this index.
    """
    if gpu.identity is not None:
        return gpu.identity.uuid
    left = unclaimed(facts)
    if len(left) == 1 and sum(other.identity is None for other in facts.listed) == 1:
        ((address, uuid),) = left.items()
        return uuid or address
    before = [known.uuid for known in facts.known.gpus if known.index == gpu.index]
    return before[0] if before else f"index {gpu.index}"


def nvlinks(facts: Facts) -> Iterator[Finding]:
    """Yield GPUs with fewer links up than the best of the same model on this node.

    Where all have equally few, the machine may be built so: bridges join some links only.
    """
    most: dict[str, int] = {}
    told = [
        (gpu.identity, int(gpu.values["nvlink_links_up"]))
        for gpu in facts.gpus.values()
        if gpu.identity is not None and gpu.values is not None and "nvlink_links_up" in gpu.values
    ]
    for identity, up in told:
        most[identity.model] = max(most.get(identity.model, 0), up)
    for identity, up in told:
        if NVLINKS_DOWN.holds(up, most[identity.model]):
            evidence = {Item.NVLINKS_UP: f"{up}", Item.NVLINKS_OF_PEERS: f"{most[identity.model]}"}
            yield _finding(facts, NVLINKS_DOWN.key, evidence, identity.uuid)


def ports(facts: Facts) -> Iterator[Finding]:
    """Yield ports that were up once and are down now, or have gone from the system."""
    if facts.ports is None:
        return
    now = {(r.identity.device, r.identity.port): r.values for r in facts.ports}
    for port in facts.known.ports:
        read = now.get((port.device, port.port))
        gone = read is None
        if port.was_up and (gone or PORT_DOWN.shows(read or {})):
            found = _finding(
                facts,
                _SEEN[NodeCheckSign.PORT_DOWN],
                {Item.LINK: "has gone from the system" if gone else "down", Item.ROLE: port.role},
            )
            subject = replace(found.subject, device=port.device, port=port.port)
            yield replace(found, subject=subject)


def kernel_log(facts: Facts) -> Iterator[Finding]:
    """Yield what the kernel has logged about GPUs and NVSwitches, and no reset has ended."""
    uuids = {
        same_form(gpu.pci_address): gpu.uuid
        for gpu in (*facts.known.gpus, *(g.identity for g in facts.gpus.values() if g.identity))
        if gpu.pci_address
    }
    answers = facts.driver is not None and not facts.driver.failure
    for told in active_reports(facts.kernel or (), facts.analyzer, driver_answers=answers):
        by_xid = XID_FAULTS.get(told.row.code, _SEEN[NodeCheckSign.XID])
        key = _SEEN[NodeCheckSign.SXID] if isinstance(told.row, Sxid) else by_xid
        gpu = None if told.address is None else uuids.get(told.address, told.address)
        found = _finding(facts, key, {}, gpu, certain=told.certain)
        yield replace(
            found,
            evidence=told.evidence,
            severity=told.row.severity,
            title=told.row.title,
            action=told.row.action,
            source=told.row.source,
        )


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    driver,
    unsupported,
    missing_gpus,
    too_few_gpus,
    gpus,
    nvlinks,
    ports,
    kernel_log,
)
