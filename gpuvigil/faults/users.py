"""What is wrong with how a GPU is used, and not with the machine."""

from ..model import EventKind, Severity
from .model import About, Blame, Fault, Link, Shows, Stops, Title
from .played import GIB, Held, Played, Told

_CATALOGUE = "NVIDIA Xid catalogue"

ROWS = (
    Fault(
        key="gpu_program",
        title="Program failed on a GPU",
        severity=Severity.INFO,
        action="Tell its user; nothing to do about the GPU unless it comes back with other programs.",
        source=f"{_CATALOGUE}: codes of programs",
        inferred=False,
        detector="gpu_xid",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.PROGRAM,
        ends_job=None,
        titled=Title.XID,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by=None,
        simulated_as=(),
        played=Played(
            gpus=({"up": 1},),
            told=(Told(kind=EventKind.XID, on="gpu", xid=31, message="selftest: Xid 31"),),
        ),
    ),
    Fault(
        key="gpu_idle_held",
        title="GPU is held but idle",
        severity=Severity.INFO,
        action="Ask its holder whether the process still needs the GPU.",
        source="job_defense_shield warns after 60 minutes at 0 %",
        inferred=True,
        detector="gpu_idle_held",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.HOLDER,
        ends_job=None,
        titled=Title.ROW,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by="idle_after_seconds",
        simulated_as=(),
        played=Played(
            gpus=(
                {
                    "up": 1,
                    "utilization_percent": 0,
                    "memory_utilization_percent": 0,
                    "memory_used_bytes": 8 * GIB,
                    "compute_processes": 1,
                },
            ),
            held=Held(holder="pid 1", started_ago=7 * 86_400.0),
            ticks_slowly=True,
        ),
    ),
    Fault(
        key="gpu_memory_held",
        title="GPU's memory is held although its job is over",
        severity=Severity.WARNING,
        action="End the process that still holds the memory.",
        source="memory in use and no allocation, for longer than a job takes to clean up",
        inferred=True,
        detector="gpu_memory_held",
        xids=(),
        about=About.GPU,
        stops=Stops.NOBODY,
        shows=Shows.MEASURED,
        blame=Blame.LEFTOVER,
        ends_job=None,
        titled=Title.ROW,
        link=Link.NOTHING,
        drains=False,
        loses_data=False,
        tuned_by=None,
        simulated_as=("zombie memory",),
        played=Played(
            gpus=({"up": 1, "memory_used_bytes": 8 * GIB},),
            held=Held(holder="job 1", started_ago=7200.0, ended_ago=3600.0),
        ),
    ),
)
