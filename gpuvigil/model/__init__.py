"""Data types that services share. Values are frozen: a change is a new value.

Times are aware and in UTC. `None` means "not measured" or "not known", and never becomes 0.
"""

from ..gpu_identity import GpuIdentity, Unmeasured
from .acceptance import Acceptance
from .action import Act, NodeAction
from .audit import Audit, AuditedAction
from .cause import Cause, CoveredBy, Ended, EndedBy, Uncovered, cause_from_json, cause_to_json
from .collected import (
    Allocation,
    AllocationState,
    BusGpu,
    Event,
    EventKind,
    Inventory,
    PortIdentity,
)
from .collective import MOST_RANKS, Collective, RankState, RankStatus, Source
from .holder import Holder, HolderKind, job_holder, pod_holder, process_holder
from .incident import (
    Acknowledgement,
    Evidence,
    Finding,
    Group,
    GroupKind,
    Impact,
    Incident,
    OutOfService,
    Transition,
    fingerprint,
    with_kind,
)
from .job import ENDED_STATES, Job, ScheduledNode, Scheduler
from .nic import Beside, Nic, PcieLink
from .older import cause_in_words
from .opinion import Opinion
from .rank_spans import Spans, ranks_in, spans
from .record import (
    COLLECTOR_KINDS,
    SCHEDULER_KINDS,
    UNREADABLE,
    Record,
    RecordKind,
    readable,
)
from .retirement import Retirement
from .rma import SEEN, Rma, RmaState
from .setup import Attribute, Setup
from .silence import Silence
from .subject import (
    RESERVED_CLUSTERS,
    SELFTEST_CLUSTER,
    SIMULATED_CLUSTER,
    GpuState,
    Severity,
    Subject,
)
from .switch import (
    ERROR_COUNTS,
    SWITCH_DEVICE,
    ErrorCount,
    Switch,
    SwitchPort,
    without_domain,
)

__all__ = [
    "COLLECTOR_KINDS",
    "ENDED_STATES",
    "ERROR_COUNTS",
    "MOST_RANKS",
    "RESERVED_CLUSTERS",
    "SCHEDULER_KINDS",
    "SEEN",
    "SELFTEST_CLUSTER",
    "SIMULATED_CLUSTER",
    "SWITCH_DEVICE",
    "UNREADABLE",
    "Acceptance",
    "Acknowledgement",
    "Act",
    "Allocation",
    "AllocationState",
    "Attribute",
    "Audit",
    "AuditedAction",
    "Beside",
    "BusGpu",
    "Cause",
    "Collective",
    "CoveredBy",
    "Ended",
    "EndedBy",
    "ErrorCount",
    "Event",
    "EventKind",
    "Evidence",
    "Finding",
    "GpuIdentity",
    "GpuState",
    "Group",
    "GroupKind",
    "Holder",
    "HolderKind",
    "Impact",
    "Incident",
    "Inventory",
    "Job",
    "Nic",
    "NodeAction",
    "Opinion",
    "OutOfService",
    "PcieLink",
    "PortIdentity",
    "RankState",
    "RankStatus",
    "Record",
    "RecordKind",
    "Retirement",
    "Rma",
    "RmaState",
    "ScheduledNode",
    "Scheduler",
    "Setup",
    "Severity",
    "Silence",
    "Source",
    "Spans",
    "Subject",
    "Switch",
    "SwitchPort",
    "Transition",
    "Uncovered",
    "Unmeasured",
    "cause_from_json",
    "cause_in_words",
    "cause_to_json",
    "fingerprint",
    "job_holder",
    "pod_holder",
    "process_holder",
    "ranks_in",
    "readable",
    "spans",
    "with_kind",
    "without_domain",
]
