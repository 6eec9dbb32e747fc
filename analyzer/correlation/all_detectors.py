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
    """Return the needs to ask the store for, so that one per measurement and span serves all."""
    asked: dict[Key, list[Need]] = {}
    for need in (need for detector in detectors for need in detector.needs):
        asked.setdefault((need.measurement, need.span), []).append(need)
    return {
        (measurement, span): Need(
            measurement=measurement,
            span=span,
            fields=tuple(sorted({field for need in needs for field in need.fields})),
            aggregates=tuple(sorted({it for need in needs for it in need.aggregates})),
        )
        for (measurement, span), needs in asked.items()
    }
