"""How a setting is declared: its default, and its sentence for the documentation."""

from dataclasses import field
from pathlib import Path
from typing import Any

# Where a service keeps its state by default; `gpuvigil up` sets other places.
STATE = Path("/var/lib/gpuvigil")


def setting(default: Any, text: str) -> Any:
    """Return a field of a settings class with its default and its sentence."""
    if isinstance(default, tuple):
        return field(default=default, metadata={"text": text})
    return field(default_factory=lambda: default, metadata={"text": text})
