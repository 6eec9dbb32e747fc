"""The schema of a line, derived from the line without its values."""

from dataclasses import dataclass
from functools import lru_cache

from gpuvigil.lineprotocol import MAX_TAGS
from gpuvigil.metrics import MEASUREMENTS, Measurement, Metric


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema, with its metric in the catalogue, if it has one."""

    name: str
    integer: bool  # written as an integer in the line
    metric: Metric | None


@dataclass(frozen=True, slots=True)
class Schema:
    """The tags and fields of lines of one schema, in order; a tag's suffix is the end of its value."""

    measurement: Measurement
    tags: tuple[tuple[str, str], ...]
    fields: tuple[Field, ...]


@lru_cache(maxsize=4096)
def schema_of(row: str) -> Schema | None:
    """Return the schema of a row given without its values; None when anything in it is unusual."""
    parts = row[1:].split(" ")
    if len(parts) != 3 or parts[2]:
        return None
    name, *tags = parts[0].split(",")
    measurement = MEASUREMENTS.get(name)
    named_tags = [_named(tag) for tag in tags]
    named_fields = [_named(text) for text in parts[1].split(",")]
    tag_keys = {key for key, _ in named_tags}
    field_keys = {key for key, _ in named_fields}
    if measurement is None or "" in tag_keys | field_keys or len(tags) > MAX_TAGS:
        return None
    if len(tag_keys) < len(named_tags) or len(field_keys) < len(named_fields):
        return None
    metrics = {metric.name: metric for metric in measurement.metrics}
    if not field_keys & set(metrics):
        return None
    fields = tuple(Field(key, suffix == "i", metrics.get(key)) for key, suffix in named_fields)
    return Schema(measurement, tuple(named_tags), fields)


def unescaped(text: str) -> str:
    """Return a name or tag without escapes; before any other character a backslash is literal."""
    return text.replace("\\ ", " ").replace("\\,", ",").replace("\\=", "=")


def _named(text: str) -> tuple[str, str]:
    """Return key and suffix of `key=` or `key=i`; the key is empty when the text is neither."""
    key, sign, suffix = text.partition("=")
    return (unescaped(key), suffix) if sign and suffix in {"", "i"} else ("", "")
