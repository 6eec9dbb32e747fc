"""The owned GPUs in service, and the reasons for which the others were lost."""

from accounting.usage import Seconds, share_percent
from gpuvigil.schedulers.out_of_service import LostTo

from ..model.content import Capacity, Loss
from ..model.rounding import HOUR, near, rounded, shared

LOSSES: tuple[tuple[LostTo, str, str], ...] = (
    (LostTo.FAULT, "fault", "a GPU or its node had failed, and no repair was known"),
    (LostTo.REPAIR, "repair", "it was being mended, or a part was with its maker"),
    (LostTo.MAINTENANCE, "maintenance", "somebody had taken it out, for something else"),
    (LostTo.UNKNOWN, "unknown", "its node disappeared without notice, or no reason was given"),
)


def capacity(seconds: Seconds, digits: int) -> Capacity:
    """Return GPU-hours in service and lost ones; they add up to those owned that could be judged."""
    unjudged = near((seconds.installed - seconds.judged) / HOUR, digits)
    if seconds.judged <= 0:
        return Capacity(unjudged_gpu_hours=unjudged)
    owned = near(seconds.judged / HOUR, digits)
    lost = [seconds.lost(to) / HOUR for to, _, _ in LOSSES]
    hours = shared([*lost, max(seconds.judged / HOUR - sum(lost), 0.0)], owned, digits)
    return Capacity(
        owned_gpu_hours=owned,
        in_service_gpu_hours=hours[-1],
        in_service_percent=rounded(seconds.in_service_percent, 1),
        losses=tuple(
            Loss(
                lost_to=to.value,
                label=label,
                meaning=text,
                gpu_hours=hour,
                percent=rounded(share_percent(one, seconds.judged / HOUR), 1),
            )
            for (to, label, text), hour, one in zip(LOSSES, hours[:-1], lost, strict=True)
        ),
        unjudged_gpu_hours=unjudged,
    )


def faults(seconds: Seconds) -> float:
    """Return GPU-seconds lost to faults, including those unavailable before reasons were recorded."""
    others = seconds.lost_repair + seconds.lost_maintenance + seconds.lost_unknown
    return max(seconds.unavailable - others, seconds.lost_fault)
