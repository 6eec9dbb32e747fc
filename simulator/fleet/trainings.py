"""Trainings of fleets whose jobs report their steps, beside `workloads`; for most, the limiting resource is obvious.

Shares of a step, rhythms and magnitudes are chosen. The healthy ones look like a straggler, a stall or a
hang and are none: stages cut unevenly, ranks whose samples differ, input that stalls, checkpoints and
evaluations that take their time.
"""

from collections.abc import Mapping

from .model import FleetSettings
from .workloads import WORKLOADS, Points, Rhythm, Workload

_LONG: Points = ((0.0, 3600.0), (0.5, 9000.0), (1.0, 20000.0))
_ENDS = (0.7, 0.08, 0.2, 0.01, 0.01)
_SMALL, _SEVERAL = ((4, 0.6), (8, 0.4)), ((8, 0.5), (16, 0.5))

_TABLE: tuple[Workload, ...] = (
    Workload(
        key="even", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=((4, 0.4), (8, 0.4), (16, 0.2)), seconds=_LONG, endings=_ENDS,
        sm=0.87, tensor=0.42, dram=0.45, utilization=0.99, nvlink=0.03, fabric=0.08,
        startup_seconds=90.0, checkpoint_every=900.0, checkpoint_seconds=20.0,
        evaluate_every=1800.0, evaluate_seconds=90.0, rhythm=Rhythm(own=0.29), bound="compute",
    ),
    Workload(
        key="memory", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SMALL, seconds=_LONG, endings=_ENDS,
        sm=0.84, tensor=0.14, dram=0.76, utilization=0.99, nvlink=0.03, fabric=0.06,
        startup_seconds=60.0, checkpoint_every=1200.0, checkpoint_seconds=30.0,
        rhythm=Rhythm(own=0.29, seconds=(0.3, 2.0)), bound="memory bandwidth",
    ),
    Workload(
        key="talking", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SEVERAL, seconds=_LONG, endings=_ENDS,
        sm=0.42, tensor=0.16, dram=0.22, utilization=0.99, nvlink=0.06, fabric=0.62,
        startup_seconds=90.0, checkpoint_every=1500.0, checkpoint_seconds=25.0,
        rhythm=Rhythm(own=0.13), bound="communication between nodes",
    ),
    Workload(
        key="talking inside", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=((4, 1.0),), seconds=_LONG, endings=_ENDS,
        sm=0.42, tensor=0.16, dram=0.22, utilization=0.99, nvlink=0.6,
        startup_seconds=60.0, checkpoint_every=1500.0, checkpoint_seconds=25.0,
        rhythm=Rhythm(own=0.13, seconds=(0.3, 3.0)), bound="communication in the node",
    ),
    Workload(
        key="starved", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SMALL, seconds=_LONG, endings=_ENDS,
        sm=0.35, tensor=0.15, dram=0.18, utilization=0.5, swing=0.15, nvlink=0.02, fabric=0.03,
        pcie_receive=600e6, host=0.45, reads=150e6, startup_seconds=60.0,
        stall_every=420.0, stall_seconds=20.0, checkpoint_every=1800.0, checkpoint_seconds=20.0,
        rhythm=Rhythm(own=0.14, input=0.5, seconds=(0.4, 4.0)), bound="input data",
    ),
    Workload(
        key="saving", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SMALL, seconds=_LONG, endings=_ENDS,
        sm=0.82, tensor=0.4, dram=0.42, utilization=0.99, nvlink=0.03, fabric=0.06,
        startup_seconds=60.0, checkpoint_every=300.0, checkpoint_seconds=130.0,
        rhythm=Rhythm(own=0.29, seconds=(0.3, 3.0)), bound="checkpointing",
    ),
    Workload(
        key="preparing", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=((4, 1.0),), seconds=_LONG, endings=_ENDS,
        sm=0.4, tensor=0.2, dram=0.2, utilization=0.45, swing=0.15, nvlink=0.02, host=0.97, reads=60e6,
        startup_seconds=60.0, stall_every=600.0, stall_seconds=12.0,
        rhythm=Rhythm(own=0.27, input=0.1, seconds=(0.4, 3.0)), bound="CPU",
    ),
    Workload(
        key="held", command="python -i", gpu_time=0.0, sizes=((1, 0.5), (4, 0.5)), seconds=_LONG,
        endings=_ENDS, redone=False, sm=0.3, tensor=0.05, dram=0.2, utilization=0.6, memory=0.4,
        host=0.02, duty=0.0, bound="nothing: idle",
    ),
    # Healthy, but each looks like a faulty job; what bounds them cannot be known.
    Workload(
        key="staged", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SEVERAL, seconds=_LONG, endings=_ENDS,
        sm=0.72, tensor=0.42, dram=0.40, utilization=0.98, swing=0.02, nvlink=0.05, fabric=0.16,
        startup_seconds=120.0, stages=True, checkpoint_every=1800.0, checkpoint_seconds=60.0,
        rhythm=Rhythm(own=0.26, dealt=(1.25, 1.0, 0.98, 0.95)),
    ),
    Workload(
        key="unlike", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=((4, 0.3), (8, 0.4), (16, 0.3)), seconds=_LONG, endings=_ENDS,
        sm=0.6, tensor=0.3, dram=0.3, utilization=0.95, swing=0.06, nvlink=0.03, fabric=0.05,
        startup_seconds=60.0, checkpoint_every=1200.0, checkpoint_seconds=30.0,
        rhythm=Rhythm(own=0.24, uneven=0.12),
    ),
    Workload(
        key="judging", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SMALL, seconds=_LONG, endings=_ENDS,
        sm=0.7, tensor=0.35, dram=0.35, utilization=0.97, nvlink=0.03, fabric=0.05,
        startup_seconds=60.0, checkpoint_every=1500.0, checkpoint_seconds=300.0,
        evaluate_every=800.0, evaluate_seconds=240.0, rhythm=Rhythm(own=0.27),
    ),
    Workload(
        key="shuffling", command="torchrun train.py", gpu_time=0.0, whole_nodes=True,
        sizes=_SMALL, seconds=_LONG, endings=_ENDS,
        sm=0.66, tensor=0.33, dram=0.34, utilization=0.97, nvlink=0.03, fabric=0.05,
        startup_seconds=60.0, checkpoint_every=120.0, checkpoint_seconds=10.0,
        stall_every=200.0, stall_seconds=25.0, rhythm=Rhythm(own=0.26),
    ),
)  # fmt: skip
TRAININGS: Mapping[str, Workload] = {workload.key: workload for workload in _TABLE}


def workloads_of(settings: FleetSettings) -> Mapping[str, Workload]:
    """Return the workloads that may run on this fleet."""
    return WORKLOADS | dict(TRAININGS) if settings.steps else WORKLOADS
