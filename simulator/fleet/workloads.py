"""The workloads of the fleet: how hard, in which rhythm, for how long, and how they end.

Activities and traffic of data-parallel training, of training at the power cap and of serving are
those of our own runs on 8 x H100 (docs/reference/h100_workload_stats.csv). Sizes, run times and
endings follow the summary of AcmeTrace's Seren and Kalos (docs/reference/acme/): half of the jobs
take two minutes, the mean is 20 to 25 minutes, 40 % fail, and the few large ones, mostly
cancelled, have most of the GPU time. Duty cycles and the mix are chosen, not measured.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from .chance import Floats

Points = tuple[tuple[float, float], ...]

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Ending(IntEnum):
    """How a job ends."""

    COMPLETED = 0
    FAILED = 1
    CANCELLED = 2
    PREEMPTED = 3
    TIMEOUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How a training makes its steps: shares of a step's length without delays."""

    own: float  # a rank's forward pass, before it first waits for the others
    seconds: tuple[float, float] = (0.3, 8.0)  # range of a step's length; each job has its own
    passes: float = 3.0  # factor on `own`, with the backward pass; the rest is communication
    input: float = 0.02
    uneven: float = 0.0  # deviation of the ranks' work, which differs in each step
    dealt: tuple[float, ...] = ()  # uneven cut of the work: factor by stage
    own_told: bool = True  # false: every pass of a tensor-parallel rank waits for others


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of work. Shares are 0 to 1; traffic is a share of what the links can carry."""

    key: str
    command: str
    gpu_time: float  # share of the requested GPU time
    sizes: tuple[tuple[int, float], ...]  # GPUs, and how often
    seconds: Points  # (share of jobs, run time)
    endings: tuple[float, float, float, float, float]
    sm: float
    tensor: float
    dram: float
    utilization: float
    swing: float = 0.03  # deviation of the activity from tick to tick
    memory: float = 0.8
    nvlink: float = 0.0
    fabric: float = 0.0
    pcie_receive: float = 74e6  # bytes per second
    pcie_transmit: float = 12e6
    host: float = 0.15  # share of the host's cores
    reads: float = 2e6  # bytes per second and GPU, from file systems [chosen]
    startup_seconds: float = 120.0  # load and compile: memory fills, nothing computes
    checkpoint_every: float = 1e12
    checkpoint_seconds: float = 0.0
    evaluate_every: float = 1e12
    evaluate_seconds: float = 0.0
    duty: float = 1.0  # share of slots in which it computes at all
    duty_seconds: float = 10.0  # how long a slot is
    daily: float = 0.0  # how strongly people's day changes the duty
    comes_daily: float = 0.0  # how strongly it changes the arrival rate: replicas that come and go
    phase_seconds: float = 1e12  # how long it keeps a level
    phase_low: float = 1.0  # the lowest level; each phase has one between it and 1
    redone: bool = True  # work since the last checkpoint, or the start, is done again
    # Requests, input or a person set its pace: a slower GPU rests less, and the job loses nothing.
    paced_elsewhere: bool = False
    stages: bool = False  # pipeline: the first and the last stage differ
    together: bool = True  # all GPUs of a job pause at the same time
    whole_nodes: bool = False  # on the part of the fleet reserved for large jobs
    stall_every: float = 1e12  # all ranks wait for input: a shard is opened, a shuffle is drawn
    stall_seconds: float = 0.0
    rhythm: Rhythm | None = None  # only of work that makes steps
    bound: str = ""  # the limiting resource in the words of `accounting.jobs.bound`, where obvious

    @property
    def gpu_bound(self) -> float:
        """The share of its time in which it goes as fast as its GPUs."""
        return 0.0 if self.paced_elsewhere else min(self.duty, 1.0)


_LONG: Points = (
    (0.0, 20.0), (0.4, 900.0), (0.6, 4 * HOUR), (0.8, 15 * HOUR), (0.95, 60 * HOUR), (1.0, 7 * DAY)
)  # fmt: skip
_MIDDLE: Points = ((0.0, 60.0), (0.4, 20 * MINUTE), (0.8, 3 * HOUR), (1.0, 20 * HOUR))
_SHORT: Points = ((0.0, 8.0), (0.5, 122.0), (0.8, 600.0), (0.97, 0.8 * HOUR), (1.0, 4 * HOUR))
_SERVING: Points = ((0.0, HOUR), (0.5, 24 * HOUR), (1.0, 10 * DAY))
_DESK: Points = ((0.0, 600.0), (0.5, 3 * HOUR), (0.9, 12 * HOUR), (1.0, 60 * HOUR))

_LARGE_ENDS = (0.22, 0.13, 0.60, 0.02, 0.03)
_SMALL_ENDS = (0.50, 0.42, 0.06, 0.01, 0.01)
_SERVING_ENDS = (0.10, 0.05, 0.80, 0.05, 0.0)

_TABLE: tuple[Workload, ...] = (
    Workload(
        key="data parallel",
        command="torchrun train.py --strategy ddp",
        gpu_time=0.20,
        sizes=((8, 0.6), (16, 0.25), (32, 0.15)),
        seconds=_LONG,
        endings=_LARGE_ENDS,
        sm=0.64, tensor=0.19, dram=0.32, utilization=0.85, memory=0.15,
        nvlink=0.0198, fabric=0.06, host=0.25, whole_nodes=True, rhythm=Rhythm(own=0.28),
        checkpoint_every=HOUR, checkpoint_seconds=30.0,
        evaluate_every=4 * HOUR, evaluate_seconds=300.0,
    ),
    Workload(
        key="tensor parallel",
        command="torchrun pretrain_gpt.py --tensor-model-parallel-size 8",
        gpu_time=0.23,
        sizes=((8, 0.35), (16, 0.25), (32, 0.2), (64, 0.15), (128, 0.05)),
        seconds=_LONG,
        endings=_LARGE_ENDS,
        sm=0.89, tensor=0.57, dram=0.52, utilization=1.0, swing=0.012, memory=0.8,
        nvlink=0.0877, fabric=0.10, host=0.12, startup_seconds=300.0, whole_nodes=True,
        rhythm=Rhythm(own=0.3, own_told=False),
        checkpoint_every=2 * HOUR, checkpoint_seconds=90.0,
    ),
    Workload(
        key="pipeline parallel",
        command="torchrun pretrain_gpt.py --pipeline-model-parallel-size 4",
        gpu_time=0.15,
        sizes=((32, 0.6), (64, 0.3), (128, 0.1)),
        seconds=_LONG,
        endings=_LARGE_ENDS,
        sm=0.72, tensor=0.42, dram=0.40, utilization=0.98, swing=0.02, memory=0.75,
        nvlink=0.05, fabric=0.16, host=0.12, startup_seconds=420.0, stages=True, whole_nodes=True,
        rhythm=Rhythm(own=0.26, dealt=(1.04, 1.0, 0.98, 0.93)),
        checkpoint_every=2 * HOUR, checkpoint_seconds=120.0,
    ),
    Workload(
        key="cpu offload",
        command="deepspeed train.py --offload-optimizer cpu",
        gpu_time=0.04,
        sizes=((1, 0.3), (4, 0.3), (8, 0.4)),
        seconds=_MIDDLE,
        endings=_SMALL_ENDS,
        sm=0.75, tensor=0.35, dram=0.4, utilization=1.0, memory=0.9,
        pcie_receive=9e9, pcie_transmit=8e9, host=0.75, duty=0.22, duty_seconds=3.0,
    ),
    Workload(
        key="fine-tuning",
        command="python finetune.py --lora",
        gpu_time=0.09,
        sizes=((1, 0.35), (2, 0.2), (4, 0.2), (8, 0.25)),
        seconds=_MIDDLE,
        endings=_SMALL_ENDS,
        sm=0.62, tensor=0.33, dram=0.38, utilization=0.93, swing=0.06, memory=0.7, nvlink=0.03,
        startup_seconds=90.0, evaluate_every=1200.0, evaluate_seconds=120.0,
        rhythm=Rhythm(own=0.29, seconds=(0.3, 3.0)),
    ),
    Workload(
        key="steady inference",
        command="python -m vllm.entrypoints.openai.api_server",
        gpu_time=0.08,
        sizes=((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1)),
        seconds=_SERVING,
        endings=_SERVING_ENDS,
        redone=False, paced_elsewhere=True,
        sm=0.15, tensor=0.04, dram=0.25, utilization=0.45, swing=0.12, memory=0.9, nvlink=0.01,
        pcie_receive=33e6, pcie_transmit=5e6, startup_seconds=180.0, duty=1.4,
        daily=0.25, together=False,
    ),
    Workload(
        key="bursty inference",
        command="python -m sglang.launch_server",
        gpu_time=0.06,
        sizes=((1, 0.7), (2, 0.2), (4, 0.1)),
        seconds=_SERVING,
        endings=_SERVING_ENDS,
        redone=False, paced_elsewhere=True,
        sm=0.22, tensor=0.06, dram=0.35, utilization=0.55, swing=0.2, memory=0.9,
        pcie_receive=20e6, pcie_transmit=4e6, startup_seconds=150.0, duty=0.45, duty_seconds=40.0,
        daily=0.5,
    ),
    Workload(
        key="sweep",
        command="python sweep.py --trial",
        gpu_time=0.05,
        sizes=((1, 0.9), (2, 0.1)),
        seconds=_SHORT,
        endings=_SMALL_ENDS,
        sm=0.38, tensor=0.08, dram=0.22, utilization=0.7, swing=0.1, memory=0.3,
        startup_seconds=25.0,
    ),
    Workload(
        key="notebook",
        command="jupyter-lab",
        gpu_time=0.05,
        sizes=((1, 0.9), (2, 0.1)),
        seconds=_DESK,
        endings=(0.2, 0.05, 0.55, 0.0, 0.2),
        redone=False, paced_elsewhere=True,
        sm=0.3, tensor=0.05, dram=0.2, utilization=0.6, swing=0.2, memory=0.35,
        startup_seconds=20.0, duty=0.02, duty_seconds=90.0, daily=0.5, host=0.02,
    ),
    Workload(
        key="data starved",
        command="python train_vision.py --num-workers 2",
        gpu_time=0.05,
        sizes=((1, 0.4), (4, 0.3), (8, 0.3)),
        seconds=_MIDDLE,
        endings=_SMALL_ENDS,
        paced_elsewhere=True,
        sm=0.22, tensor=0.05, dram=0.12, utilization=0.36, swing=0.35, memory=0.4, nvlink=0.004,
        pcie_receive=600e6, host=0.6, duty=0.7, duty_seconds=10.0,
    ),
    # Only where a mix includes them: most real utilisation lies between 0 and 100 %.
    Workload(
        key="ragged training",
        command="accelerate launch train.py",
        gpu_time=0.0,
        sizes=((1, 0.3), (2, 0.2), (4, 0.2), (8, 0.3)),
        seconds=_MIDDLE,
        endings=_SMALL_ENDS,
        sm=0.62, tensor=0.3, dram=0.36, utilization=0.92, swing=0.08, memory=0.6, nvlink=0.02,
        host=0.3, startup_seconds=60.0, duty=0.6, duty_seconds=240.0,
        phase_seconds=1500.0, phase_low=0.3, rhythm=Rhythm(own=0.25, seconds=(0.5, 5.0)),
    ),
    Workload(
        key="phased scoring",
        command="python score.py --shards 64",
        gpu_time=0.0,
        sizes=((1, 0.6), (2, 0.2), (4, 0.2)),
        seconds=_MIDDLE,
        endings=_SMALL_ENDS,
        sm=0.42, tensor=0.12, dram=0.3, utilization=0.6, swing=0.08, memory=0.5,
        pcie_receive=200e6, host=0.35, startup_seconds=60.0,
        phase_seconds=2400.0, phase_low=0.08, together=False,
    ),
    Workload(  # the serving half of our own second run: 6 to 13 % utilisation at 126 to 146 W
        key="quiet inference",
        command="python -m vllm.entrypoints.openai.api_server --port 8001",
        gpu_time=0.0,
        sizes=((1, 0.6), (2, 0.3), (4, 0.1)),
        seconds=_SERVING,
        endings=_SERVING_ENDS,
        redone=False, paced_elsewhere=True,
        sm=0.05, tensor=0.008, dram=0.05, utilization=0.12, swing=0.15, memory=0.42,
        pcie_receive=33e6, pcie_transmit=5e6, startup_seconds=180.0, daily=0.3, duty=1.5,
        phase_seconds=3600.0, phase_low=0.5, together=False,
    ),
    Workload(
        key="autoscaled inference",
        command="python -m sglang.launch_server --replica",
        gpu_time=0.0,
        sizes=((1, 0.7), (2, 0.3)),
        seconds=((0.0, 0.2 * HOUR), (0.5, 1.5 * HOUR), (0.9, 6 * HOUR), (1.0, 12 * HOUR)),
        endings=(0.9, 0.02, 0.08, 0.0, 0.0),
        redone=False, paced_elsewhere=True,
        sm=0.2, tensor=0.06, dram=0.3, utilization=0.5, swing=0.2, memory=0.9,
        pcie_receive=25e6, pcie_transmit=5e6, startup_seconds=90.0, duty=1.2, daily=0.3,
        comes_daily=0.8, phase_seconds=900.0, phase_low=0.4, together=False,
    ),
)  # fmt: skip

WORKLOADS: dict[str, Workload] = {workload.key: workload for workload in _TABLE}


def day(seconds: Floats) -> Floats:
    """Return the daily rhythm of people: -1 at three at night, 1 at three in the afternoon, less on weekends.

    The fleet starts at midnight of a Monday; parabolas stand for the cosine.
    """
    hour = np.mod(seconds - 3.0 * 3600.0, DAY) / 3600.0  # 0 is the quietest
    away = np.abs(hour - 12.0) / 12.0  # 1 at night, 0 at noon of the tide
    wave = np.where(away < 0.5, 1.0 - 4.0 * away * away, 4.0 * (1.0 - away) * (1.0 - away) - 1.0)
    weekend = np.mod(np.floor(seconds / DAY), 7.0) >= 5.0
    return np.where(weekend, np.minimum(wave, 0.0) - 0.3, wave)
