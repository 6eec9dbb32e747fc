"""What makes a GPU slow, or its job."""

from ..model import Severity
from .model import About, Blame, Fault, Link, Shows, Stops, Title
from .played import Fields, Grows, Held, Played, Turns

_BUSY: Fields = {"up": 1, "utilization_percent": 95}
_FULL_SPEED, _STUCK = 1_980_000_000, 1_000_000_000

ROWS = (
    Fault(
        key="gpu_hot",
        title="GPU is too hot",
        severity=Severity.WARNING,
        action="Check fans, heatsink and the inlet temperature.",
        source="nvml.h, clock event reasons 0x20 and 0x40",
        inferred=True,
        detector="gpu_hot",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.COOLING,
        ends_job=None,
        titled=Title.CONDITION,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by="steady_seconds",
        simulated_as=(),
        played=Played(
            gpus=(
                {
                    "up": 1,
                    "temperature_celsius": 95,
                    "hardware_thermal_slowdown_seconds": Grows(per_second=0.9),
                },
            )
        ),
    ),
    Fault(
        key="gpu_power",
        title="GPU is held back by its power supply",
        severity=Severity.WARNING,
        action="Check the node's power supplies and cables.",
        source="nvml.h, clock event reason 0x80, HW power brake",
        inferred=False,
        detector="gpu_power",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.POWER,
        ends_job=None,
        titled=Title.CONDITION,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by=None,
        simulated_as=(),
        played=Played(gpus=({"up": 1, "power_brake_seconds": Grows(per_second=0.9)},)),
    ),
    Fault(
        key="gpu_clocks",
        title="GPU's clocks do not rise under load",
        severity=Severity.WARNING,
        action="Drain the node and reset the GPU.",
        source="no clock event explains it, and its neighbours run faster",
        inferred=True,
        detector="gpu_clocks",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.GPU,
        ends_job=None,
        titled=Title.ROW,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by="steady_seconds",
        simulated_as=("stuck clocks",),
        played=Played(
            gpus=tuple(
                {**_BUSY, "sm_clock_hertz": hertz, "sm_clock_max_hertz": _FULL_SPEED}
                for hertz in (_STUCK, *[_FULL_SPEED] * 4)
            )
        ),
    ),
    Fault(
        key="gpu_slow",
        title="GPU slows its job down",
        severity=Severity.WARNING,
        action="Keep the GPU out of large jobs and run a benchmark on it, beside one of its peers.",
        source="ours: the job's other GPUs wait for it, which they did not before",
        inferred=True,
        detector="gpu_slow",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.GPU,
        ends_job=None,
        titled=Title.ROW,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by=None,
        simulated_as=("slow GPU",),
        played=Played(
            gpus=tuple(
                {
                    **_BUSY,
                    "sm_clock_hertz": _FULL_SPEED,
                    "sm_clock_max_hertz": _FULL_SPEED,
                    "sm_activity_percent": Turns(before=80.0, after=64.0),
                    "power_watts": Turns(before=600.0, after=watts),
                }
                for watts in (500.0, *[590.0] * 4)
            ),
            held=Held(holder="job 2", gpus=5, started_ago=86_400.0),
        ),
    ),
    Fault(
        key="gpu_hung",
        title="GPU is fully used at the power of an idle one",
        severity=Severity.WARNING,
        action="Ask the job's owner; end the job if it makes no progress.",
        source="kernels that spin: full utilisation, low power, silent links",
        inferred=True,
        detector="gpu_hung",
        xids=(),
        about=About.GPU,
        stops=Stops.HOLDER,
        shows=Shows.MEASURED,
        blame=Blame.UNKNOWN,
        ends_job=None,
        titled=Title.ROW,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by=None,
        simulated_as=("hung process",),
        played=Played(
            gpus=(
                {
                    "up": 1,
                    "utilization_percent": 100,
                    "memory_utilization_percent": 0,
                    "power_watts": 150.0,
                    "power_limit_watts": 700.0,
                },
            )
        ),
    ),
)
