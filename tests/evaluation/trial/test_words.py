"""What the trial says that it could not judge."""

from evaluation.trial.words import limits
from gpuvigil.faults import FAULTS

GIVEN = frozenset({"gpu", "gpu.memory_used_bytes", "gpu.utilization_percent"})
OF_HOLDERS = [FAULTS[key].title for key in ("gpu_memory_held", "gpu_slow", "gpu_underused")]


def test_what_needs_a_holder_is_said_once_where_none_is_named() -> None:
    first, *others = limits(GIVEN, (), named=0, gpus=8)
    assert first.startswith("Who holds the 8 GPUs: no series has a label")
    assert first.endswith(f" Not judged without: {', '.join(sorted(OF_HOLDERS))}.")
    assert not any(title in line for line in others for title in OF_HOLDERS)


def test_with_holders_nothing_is_said_of_them() -> None:
    told = "\n".join(limits({*GIVEN, "jobs"}, (), named=8, gpus=8))
    assert "Who holds" not in told
    assert OF_HOLDERS[0] not in told
