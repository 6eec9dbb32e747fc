"""What the detectors are compared with: what others ship, and what a library provides as it is.

Each baseline is a list of detectors like the analyzer's own, so that the same passes, correlation and book
make incidents of their findings, and the same judge judges them. All of them have the same inputs as our
own, and the analyzer's life of an incident: an alert stands as long as its fault does.
"""

from collections.abc import Mapping, Sequence

from analyzer.correlation.all_detectors import DETECTORS, Detector
from gpuvigil.config import AnalyzerSettings

from ..judge.fault_names import NAMING
from .peers import LIMITS, PEERS, named
from .peers import SETTINGS as PEERS_SETTINGS
from .rules import RULES
from .rules import SETTINGS as RULES_SETTINGS
from .trivial import ALWAYS, NEVER

__all__ = ["ALWAYS", "NEVER", "OURS", "SETS", "SETTINGS", "TRIVIAL", "variant_of", "variants"]

OURS = "gpuvigil"
SETS: Mapping[str, Sequence[Detector]] = {OURS: DETECTORS, **RULES, **PEERS}
# The settings of each set; a set that is missing here has the product's own.
SETTINGS: Mapping[str, AnalyzerSettings] = {
    **RULES_SETTINGS,
    **dict.fromkeys(PEERS, PEERS_SETTINGS),
}
TRIVIAL = (ALWAYS, NEVER)


def variants(name: str) -> tuple[str, ...]:
    """Return the names under which a set's claims are kept: one for each limit where it has a score."""
    return tuple(named(name, far) for far in LIMITS) if name in PEERS else (name,)


def variant_of(name: str, fault: str) -> str:
    """Return the variant of a set that made a claim, by the fault that it claims."""
    return fault.partition(NAMING)[0] if name in PEERS else name
