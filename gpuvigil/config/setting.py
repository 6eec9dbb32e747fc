"""How a setting is written down: its default, and its sentence for the documentation."""

from dataclasses import field
from pathlib import Path
from typing import Any

# Where a service keeps its state unless told otherwise; `gpuvigil up` tells it otherwise.
STATE = Path("/var/lib/gpuvigil")


def setting(default: Any, text: str) -> Any:
    """A field of a settings class with its default and its sentence."""
    if isinstance(default, tuple):
        return field(default=default, metadata={"text": text})
    return field(default_factory=lambda: default, metadata={"text": text})
