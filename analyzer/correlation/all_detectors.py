"""All detectors, and what to ask the store for them."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules

from .. import detectors
from ..detectors import Detector
from ..window.window import Key, Need

__all__ = ["DETECTORS", "Detector", "questions"]


def _found() -> Iterator[Detector]:
    for module in iter_modules(detectors.__path__):
        detector: Detector = import_module(f"{detectors.__name__}.{module.name}").DETECTOR
        yield detector


DETECTORS: tuple[Detector, ...] = tuple(_found())


def questions(detectors: Iterable[Detector]) -> dict[Key, Need]:
    """What to ask the store so that one answer per measurement and span serves all detectors."""
    asked: dict[Key, Need] = {}
    for need in (need for detector in detectors for need in detector.needs):
        key = (need.measurement, need.span)
        before = asked.get(key, Need(measurement=need.measurement, span=need.span))
        asked[key] = Need(
            measurement=need.measurement,
            span=need.span,
            fields=tuple(sorted({*before.fields, *need.fields})),
            aggregates=tuple(sorted({*before.aggregates, *need.aggregates})),
        )
    return asked
