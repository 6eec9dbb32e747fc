"""Which versions of NCCL may be asked through their RAS socket: a table of known crashes.

Read in the maintainers' threads in 2026; nothing of it was tried here, and a test's stand-in for
NCCL cannot show it. Whatever the table says, no version is asked that the site did not name itself.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

Version = tuple[int, int, int]
_FORM = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What was reported of versions from `first` to before `end`; None: all since."""

    first: Version
    end: Version | None
    what: str
    source: str
    refused: bool  # never asked, even if a site names it


RISKS = (
    Risk(
        first=(0, 0, 0),
        end=(2, 28, 7),
        what="it answers no JSON",
        source="NVIDIA/nccl v2.28.7, src/ras/client_support.cc: SET FORMAT",
        refused=True,
    ),
    Risk(
        first=(2, 26, 2),
        end=(2, 27, 0),
        what="a question while it initialises crashes the job",
        source="github.com/NVIDIA/nccl/issues/1669 and 1718",
        refused=True,
    ),
    Risk(
        first=(2, 27, 3),
        end=(2, 29, 2),
        what="a question damages the job's memory",
        source="github.com/NVIDIA/nccl/issues/1762, said to be fixed in 2.29.2",
        refused=True,
    ),
    Risk(
        first=(2, 27, 7),
        end=(2, 29, 2),
        what="RAS crashes the job also without a question",
        source="github.com/NVIDIA/nccl/issues/1996",
        refused=True,
    ),
    Risk(
        first=(2, 28, 9),
        end=(2, 29, 2),
        what="its JSON is not valid",
        source="github.com/ray-project/ray/pull/64928",
        refused=True,
    ),
    Risk(
        first=(2, 29, 7),
        end=(2, 29, 8),
        what="a question while a communicator is made crashes jobs of 256 GPUs",
        source="github.com/NVIDIA/nccl/issues/2346",
        refused=True,
    ),
    # Later versions have the same lines, and the report is open.
    Risk(
        first=(2, 29, 2),
        end=None,
        what="a question while a communicator is made may crash the job",
        source="github.com/NVIDIA/nccl/issues/2346, src/ras/collectives.cc: rasCollCommsInit",
        refused=False,
    ),
)


def version(text: str) -> Version | None:
    """Return `2.30.7` as numbers; None for all else."""
    found = _FORM.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def risks(of: Version) -> tuple[Risk, ...]:
    """Return all that is known of a version; what forbids asking it comes first."""
    found = [one for one in RISKS if one.first <= of and (one.end is None or of < one.end)]
    return tuple(sorted(found, key=lambda one: not one.refused))


def refusal(text: str, named: Collection[str]) -> str:
    """Return why this version is not asked; "" where the site named it and no crash forbids it."""
    number = version(text)
    if number is None:
        return "its version of NCCL is not known"
    forbidden = [one for one in risks(number) if one.refused]
    if forbidden:
        return f"NCCL {text} is never asked: {forbidden[0].what} ({forbidden[0].source})"
    return "" if text in named else f"NCCL {text} is not in collector.nccl_ras_versions"
