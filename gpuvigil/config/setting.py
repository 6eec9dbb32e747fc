"""How a setting is written down: its default, and its sentence for the documentation."""

from dataclasses import field
from typing import Any


def setting(default: Any, text: str) -> Any:
    """A field of a settings class with its default and its sentence."""
    if isinstance(default, tuple):
        return field(default=default, metadata={"text": text})
    return field(default_factory=lambda: default, metadata={"text": text})
