"""Whom the detectors are held against: what others ship, and what a library gives for nothing.

Each is a list of detectors like the analyzer's own, so that the same passes, correlation and book
make incidents of what they find, and the same judge judges it. Nobody's rules get a second look
taken away or added: the analyzer's life of an incident is everybody's.
"""

from collections.abc import Mapping, Sequence

from analyzer.correlation.all_detectors import DETECTORS, Detector
from gpuvigil.config import AnalyzerSettings

from .peers import PEERS
from .peers import SETTINGS as PEERS_SETTINGS
from .rules import RULES
from .rules import SETTINGS as RULES_SETTINGS

SETS: Mapping[str, Sequence[Detector]] = {"gpuvigil": DETECTORS, **RULES, **PEERS}
# With which settings each runs; a set that is not here has the product's own.
SETTINGS: Mapping[str, AnalyzerSettings] = {
    **RULES_SETTINGS,
    **dict.fromkeys(PEERS, PEERS_SETTINGS),
}
