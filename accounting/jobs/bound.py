"""What bounds a job over a span: pure, from measurements of its GPUs, nodes and ports.

What the job's own ranks report of their steps comes first: how long a step took, how long a rank itself
worked in it, how long it waited for input, and the time in no step. Without them, counters say what they
can. A GPU's utilisation says that a kernel ran, and a collective that waits for others is a kernel too:
a busy GPU with idle multiprocessors may wait for the network, and only traffic or waits there show it.
NVIDIA's DCGM user guide ("Feature Overview, Profiling Metrics") has the limits of the GPU's counters: an
SM activity of 80 % is necessary for effective use, under 50 % "likely indicates ineffective GPU usage",
and in practice memory bandwidth ends at some 80 %. All other limits are ours, chosen so that only obvious
cases are reported. What was not measured says nothing, and is listed as missing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

# A GPU is busy from this utilisation on; below it the job waits for something that is no kernel [ours].
BUSY_PERCENT = 80.0
# If no sample is above it, nothing was computed.
NOTHING_PERCENT = 1.0
EFFECTIVE_SM_PERCENT = 80.0  # DCGM's guide
LITTLE_SM_PERCENT = 50.0  # DCGM's guide
# Three quarters of the 80 % that DCGM's guide calls the most that is reached [ours].
MEMORY_DRAM_PERCENT = 60.0
# A smaller share of a step, or of the span, bounds no job [ours].
STEP_SHARE = 0.2
# The mean share of a link's speed, bursts included, from which on a job waits for that link [ours].
LINK_SHARE = 0.5
# A step computes for this many times its forward pass: the backward pass is twice as much (Kaplan et al.,
# "Scaling Laws for Neural Language Models", 2020), and the forward pass once more where activations are
# recomputed. The rest of a step is at least communication.
PASSES = 4.0
# Up to this many bytes a second, a node's traffic is heartbeats and mounts, not work [ours].
HEARTBEAT_BYTES = 1e6
# Percent of the time for which others stop a port [ours]; links without a finding are listed from 1 % on.
PORT_WAIT_PERCENT = 5.0
# Bytes a second, over the whole span, by one node of a job whose GPUs idle: a rank's share of a model's state
# is tens of GB, and logs are under a megabyte a second [ours, as in `gpu_hung`].
STORAGE_BYTES = 50e6
# Percent of the time for which at least one task waits for a processor (PSI `some`), and of all processors [ours].
CPU_PRESSURE_PERCENT, CPU_PERCENT = 20.0, 90.0
# The share of a job's GPUs and of the span that has to be measured.
COVERAGE = 0.5
# The confidence [ours, an order and no probability]: the job's own word, a direct counter, a matching counter.
_TOLD, _COUNTED, _FITS = 0.9, 0.7, 0.5


class Bound(str, Enum):
    """The resource that limits the speed of a job."""

    COMPUTE = "compute"
    MEMORY = "memory bandwidth"
    IN_NODE = "communication in the node"
    BETWEEN_NODES = "communication between nodes"
    INPUT = "input data"
    CHECKPOINT = "checkpointing"
    CPU = "CPU"
    NOTHING = "nothing: idle"
    ON_CALL = "not judged"  # it works when its users ask for something
    EARLY = "too early"
    UNKNOWN = "cannot be said"


# Results that name no resource.
UNSAID = frozenset({Bound.ON_CALL, Bound.EARLY, Bound.UNKNOWN})

ADVICE = {
    Bound.COMPUTE: "The GPUs are used: faster kernels, lower precision or more GPUs make it faster.",
    Bound.MEMORY: "Fused kernels, lower precision or larger tiles need less memory bandwidth.",
    Bound.IN_NODE: "Overlap communication with compute, or split the model over fewer GPUs of a node.",
    Bound.BETWEEN_NODES: "Look at the links of its nodes first; then overlap communication, or use larger batches.",
    Bound.INPUT: "More loader workers, prefetching, or data nearer to the node feed it faster.",
    Bound.CHECKPOINT: "Write checkpoints asynchronously, to faster storage, or less often.",
    Bound.CPU: "Ask for more CPU cores per GPU, or move preprocessing to the GPU.",
    Bound.NOTHING: "It computes nothing: look whether it hangs or waits, or end it.",
    Bound.ON_CALL: "",
    Bound.EARLY: "",
    Bound.UNKNOWN: "",
}
STEPS, SM, HOST, PORTS = "step times of its ranks", "SM activity", "host CPU", "port traffic"
STORAGE = "bytes that it reads and writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps that ranks reported, as means over those ranks."""

    seconds: float  # length of a step
    ranks: int
    own_seconds: float | None = None  # work of the rank itself: compute, without waiting for others
    input_seconds: float | None = None  # wait for data
    # The share of the span in no step; None where steps were not counted.
    outside_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One job over a span: means over its GPUs, nodes and ports; None is not measured.

    Shares are of the maximum: of a power limit, or of a link's speed.
    """

    gpus: int
    nodes: int
    coverage: float  # share of the expected samples of its GPUs
    utilization_percent: float | None = None
    utilization_most_percent: float | None = None
    sm_percent: float | None = None
    sm_most_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None
    power_share: float | None = None
    nvlink_bytes_per_second: float | None = None
    nvlink_share: float | None = None
    pcie_bytes_per_second: float | None = None
    pcie_share: float | None = None
    fabric_share: float | None = None  # of the ports that its nodes communicate through
    fabric_wait_percent: float | None = None
    fabric_bytes_per_second: float | None = None  # of one node
    storage_received_share: float | None = None
    storage_sent_share: float | None = None
    cpu_percent: float | None = None
    cpu_pressure_percent: float | None = None
    read_bytes_per_second: float | None = None  # by one node, on disks and mounts
    written_bytes_per_second: float | None = None  # by the node that writes most
    # Whether other jobs have GPUs of its nodes: these two are then its own, on disks alone.
    with_others: bool = False
    steps: Steps | None = None
    checkpoint_share: float | None = None  # upper bound of the share of the span, by ranks' phases
    checkpoints: bool = False  # whether one was written in the span


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The limiting resource, the evidence in one sentence, and what would make the answer surer."""

    bound: Bound
    text: str
    confidence: float  # 0 to 1
    missing: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        return ADVICE[self.bound]


def decide(job: Activity) -> Decision:
    """Return what bounds the job: the first case that holds."""
    missing = tuple(_missing(job))
    if job.utilization_percent is None:
        return Decision(
            bound=Bound.UNKNOWN,
            text="the utilisation of its GPUs was not measured",
            confidence=0.0,
            missing=missing,
        )
    if job.coverage < COVERAGE:
        said = f"only {100.0 * job.coverage:.0f} % of its GPUs' samples are there"
        return Decision(bound=Bound.UNKNOWN, text=said, confidence=0.0, missing=missing)
    if (job.utilization_most_percent or 0.0) < NOTHING_PERCENT:
        bound, said, sure = _of_idle(job)
        return Decision(bound=bound, text=said, confidence=sure, missing=missing)
    bound, said, sure = _of_steps(job) or _of_waits(job) or _of_kernels(job)
    outside = job.steps.outside_share if job.steps else None
    if bound is Bound.UNKNOWN and outside is not None and outside >= STEP_SHARE:
        said = f"{100.0 * outside:.0f} % of the time is outside steps, and the job does not report what it does then"
    confidence = sure * min(job.coverage, 1.0)
    return Decision(bound=bound, text=said, confidence=confidence, missing=missing)


_Found = tuple[Bound, str, float]


def _missing(job: Activity) -> Iterator[str]:
    """Yield what would have helped and was not measured."""
    if job.steps is None:
        yield STEPS
    if job.sm_percent is None:
        yield SM
    if job.nodes > 1 and job.fabric_share is None:
        yield PORTS
    if job.cpu_percent is None and job.cpu_pressure_percent is None:
        yield HOST
    idles = (job.utilization_percent or 0.0) < BUSY_PERCENT
    if idles and job.read_bytes_per_second is None and job.written_bytes_per_second is None:
        yield STORAGE


def _of_idle(job: Activity) -> _Found:
    """Judge GPUs without a kernel: a checkpoint needs none, and a job that writes one does not hang."""
    said = "no kernel ran on any of its GPUs"
    if (job.checkpoint_share or 0.0) >= STEP_SHARE:
        return Bound.CHECKPOINT, f"{said}, and its ranks are at a checkpoint", _TOLD
    if job.checkpoints:
        return Bound.UNKNOWN, f"{said}, and a checkpoint was written", 0.0
    return Bound.NOTHING, said, _TOLD


def _of_steps(job: Activity) -> _Found | None:
    """Judge by the steps that the job reports: the largest share of its time that is not work of its ranks."""
    steps = job.steps
    if steps is None or steps.seconds <= 0.0:
        return None
    shares = list(_shares(job, steps))
    bound, share, said = max(shares, key=lambda it: it[1], default=(Bound.UNKNOWN, 0.0, ""))
    return (bound, said, _TOLD) if share >= STEP_SHARE else None


def _shares(job: Activity, steps: Steps) -> Iterator[tuple[Bound, float, str]]:
    inside = 1.0 - (steps.outside_share or 0.0)
    if steps.outside_share is not None and job.checkpoint_share is not None:
        share = min(steps.outside_share, job.checkpoint_share)
        said = f"up to {100.0 * share:.0f} % of the time its ranks are at a checkpoint"
        yield Bound.CHECKPOINT, share, said
    if steps.input_seconds is not None:
        share = steps.input_seconds / steps.seconds
        said = f"{steps.input_seconds:.2f} of {steps.seconds:.2f} s of a step wait for input"
        yield Bound.INPUT, share * inside, said
    beyond = _beyond_passes(job, steps)
    if beyond is not None:
        said = f"at least {beyond:.2f} of {steps.seconds:.2f} s of a step are communication or waits for others"
        yield _where(job), beyond / steps.seconds * inside, said


def _beyond_passes(job: Activity, steps: Steps) -> float | None:
    """Return the seconds of a step that no pass of the model explains: waits in collectives.

    A rank's own work ends with the forward pass; what follows computes and communicates at once. None
    where own work is not known, with one GPU, or where the multiprocessors are full.
    """
    fills = job.sm_percent is not None and job.sm_percent >= EFFECTIVE_SM_PERCENT
    if steps.own_seconds is None or job.gpus < 2 or fills:
        return None
    passes = PASSES * steps.own_seconds
    return max(steps.seconds - passes - (steps.input_seconds or 0.0), 0.0)


def _where(job: Activity) -> Bound:
    """Return where the ranks communicate: with quiet ports, a job on several nodes does so within each."""
    moved = job.fabric_bytes_per_second
    quiet = moved is not None and moved < HEARTBEAT_BYTES
    return Bound.IN_NODE if job.nodes == 1 or quiet else Bound.BETWEEN_NODES


def _of_waits(job: Activity) -> _Found | None:
    """Judge GPUs without a kernel for part of the time by what they wait for."""
    busy = job.utilization_percent
    if busy is None or busy >= BUSY_PERCENT:
        return None
    idle = f"its GPUs have no kernel {100.0 - busy:.0f} % of the time"
    for value, limit, bound, said, sure in (
        (job.cpu_pressure_percent, CPU_PRESSURE_PERCENT, Bound.CPU, "tasks wait for a processor {:.0f} % of it", _COUNTED),
        (job.cpu_percent, CPU_PERCENT, Bound.CPU, "its nodes' processors are {:.0f} % busy", _COUNTED),
        (_percent(job.storage_sent_share), 100.0 * LINK_SHARE, Bound.CHECKPOINT, "its nodes' storage ports send at {:.0f} % of their speed", _FITS),
        (_percent(job.storage_received_share), 100.0 * LINK_SHARE, Bound.INPUT, "its nodes' storage ports receive at {:.0f} % of their speed", _FITS),
        (_percent(job.pcie_share), 100.0 * LINK_SHARE, Bound.INPUT, "PCIe carries {:.0f} % of its speed", _FITS),
    ):  # fmt: skip
        if value is not None and value >= limit:
            return bound, f"{idle}, and {said.format(value)}", sure
    return _of_storage(job, idle) or (Bound.UNKNOWN, f"{idle}, and {_unseen(job)}", 0.0)


def _of_storage(job: Activity, waits: str) -> _Found | None:
    """Judge a waiting job by what its nodes read or write, whichever is more.

    A job whose steps leave no time between them does not wait for a checkpoint.
    """
    read, written = job.read_bytes_per_second or 0.0, job.written_bytes_per_second or 0.0
    outside = None if job.steps is None else job.steps.outside_share
    between = outside is None or outside >= STEP_SHARE
    reads, writes = (
        ("it reads", "it writes") if job.with_others else ("its nodes read", "its nodes write")
    )
    if written >= STORAGE_BYTES and written > read and between:
        said = f"{waits}, and {writes} {written / 1e6:.0f} MB/s"
        return Bound.CHECKPOINT, said, _FITS
    if read >= STORAGE_BYTES and read >= written:
        return Bound.INPUT, f"{waits}, and {reads} {read / 1e6:.0f} MB/s", _FITS
    return None


def _unseen(job: Activity) -> str:
    """Return why it is unknown what the job's GPUs wait for."""
    nothing = "no measurement says what they wait for"
    if job.read_bytes_per_second is None and job.written_bytes_per_second is None:
        return nothing
    if job.with_others:
        return f"{nothing}: it reads and writes little on its nodes' own disks, and other jobs use their network file systems, too"
    return f"{nothing}: its nodes read and write little, and reads from an object store or a cache do not show"


def _of_kernels(job: Activity) -> _Found:
    """Judge GPUs that always run a kernel by what that kernel does."""
    if job.sm_percent is None:
        said = "its GPUs always run a kernel, and what it does was not measured"
        return Bound.UNKNOWN, said, 0.0
    dram, tensor = job.dram_percent, job.tensor_percent
    if dram is not None and dram >= MEMORY_DRAM_PERCENT and dram >= (tensor or 0.0):
        return Bound.MEMORY, f"memory bandwidth is used to {dram:.0f} %", _COUNTED
    if job.sm_percent >= EFFECTIVE_SM_PERCENT:
        return Bound.COMPUTE, _compute_words(job), _COUNTED
    return _of_links(job) or _of_pauses(job) or _half_filled(job)


def _of_links(job: Activity) -> _Found | None:
    """Return the link that bounds a job whose kernels leave multiprocessors idle; None where none does."""
    sm = f"SM activity is {job.sm_percent or 0.0:.0f} %"
    wait, fabric = job.fabric_wait_percent, job.fabric_share
    if job.nodes > 1 and wait is not None and wait >= PORT_WAIT_PERCENT:
        said = f"{sm}, and others stop its nodes' ports {wait:.0f} % of the time"
        return Bound.BETWEEN_NODES, said, _COUNTED
    if job.nodes > 1 and fabric is not None and fabric >= LINK_SHARE:
        said = f"{sm}, and its nodes' ports carry {100.0 * fabric:.0f} % of their speed"
        return Bound.BETWEEN_NODES, said, _COUNTED
    nvlink = job.nvlink_share
    if job.gpus > 1 and nvlink is not None and nvlink >= LINK_SHARE:
        said = f"{sm}, and NVLink carries {100.0 * nvlink:.0f} % of its speed"
        return Bound.IN_NODE, said, _COUNTED
    return None


def _of_pauses(job: Activity) -> _Found | None:
    """Judge a job whose kernels run but that has time in no step: its ranks may wait for one that writes for all.

    Where no steps are counted, the multiprocessors must rest for that share of the time.
    """
    outside = None if job.steps is None else job.steps.outside_share
    if outside is not None:
        told = f"{100.0 * outside:.0f} % of the time is in no step"
        return _of_storage(job, told) if outside >= STEP_SHARE else None
    sm, most = job.sm_percent or 0.0, job.sm_most_percent
    if most is None or sm > (1.0 - STEP_SHARE) * most:
        return None
    rest = f"its multiprocessors are {most:.0f} % active at most and {sm:.0f} % on average"
    found = _of_storage(job, rest)
    # A job that works well reads, too.
    return found if found is not None and found[0] is Bound.CHECKPOINT else None


def _half_filled(job: Activity) -> _Found:
    """Judge by the multiprocessors alone, where no other measurement explains anything."""
    sm = job.sm_percent or 0.0
    if sm >= LITTLE_SM_PERCENT:
        return Bound.COMPUTE, _compute_words(job), _FITS
    said = f"a kernel always runs and fills {sm:.0f} % of the multiprocessors: "
    many = "it waits for other ranks, or its kernels are small"
    return Bound.UNKNOWN, said + (many if job.gpus > 1 else "its kernels are small"), 0.0


def _compute_words(job: Activity) -> str:
    tensor = "" if job.tensor_percent is None else f", tensor cores {job.tensor_percent:.0f} %"
    return f"SM activity is {job.sm_percent or 0.0:.0f} %{tensor}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
