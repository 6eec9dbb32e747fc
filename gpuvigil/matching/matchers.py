"""Matchers, in Alertmanager's words: `owner="alice"`, `rack=~"r1.*"`, `severity!="info"`.

An incident has several values for some labels (its owners, its nodes). `=` and `=~` hold when any
value fits, `!=` and `!~` when none does; a label without a value counts as empty. Silences are
narrower (`covered`): they must match everything that the incident is about.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..model import Incident, Subject

Labels = Mapping[str, Sequence[str]]

# The labels that an incident can be matched by.
LABELS = (
    *("incident", "severity", "fault", "cluster", "rack", "node", "gpu", "device", "port"),
    *("owner", "account", "partition", "holder", "simulated"),
)
_MATCHER = re.compile(
    r'\s*([a-z_]+)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|([^"\s=~][^"\s]*))\s*',
    re.DOTALL,
)
_PAIR_OR_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_LONGEST_PATTERN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on an incident's labels."""

    label: str
    operator: str  # =, !=, =~ or !~
    value: str

    def __str__(self) -> str:
        """Return the text that `matcher` parses. A pattern keeps its own backslashes: each has a meaning."""
        if "~" in self.operator:
            escaped = _PAIR_OR_QUOTE.sub(lambda found: found[1] or '\\"', self.value)
        else:
            escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.label}{self.operator}"{escaped}"'

    def fits(self, labels: Labels) -> bool:
        """Return whether the condition holds: for any value, or for none if it is negative."""
        return any(self._found(labels)) == self._positive

    def covers(self, labels: Labels) -> bool:
        """Return whether the condition holds for every value, so for all that the incident is about."""
        return all(found == self._positive for found in self._found(labels))

    @property
    def _positive(self) -> bool:
        return not self.operator.startswith("!")

    def _found(self, labels: Labels) -> Iterator[bool]:
        values = labels.get(self.label) or ("",)
        if "~" in self.operator:
            from .patterns import fits  # noqa: PLC0415 - only who matches needs its library

            return (fits(self.value, value) for value in values)
        return (self.value == value for value in values)


@lru_cache(maxsize=4096)
def matcher(text: str) -> Matcher:
    """Parse a matcher; raise ValueError that says what is wrong with it."""
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise ValueError(f'{text!r} is not a matcher like owner="alice" or rack=~"r1.*"')
    label, operator, quoted, bare = found.groups()
    if label not in LABELS:
        raise ValueError(f"{label!r} is no label; there are {', '.join(LABELS)}")
    value = bare if quoted is None else quoted
    if quoted is not None and "~" not in operator:
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    made = Matcher(label=label, operator=operator, value=value)
    if "~" in operator:
        if len(made.value) > _LONGEST_PATTERN:
            raise ValueError(f"{label}: a pattern may have {_LONGEST_PATTERN} characters")
        _check(made.value)
    return made


def _check(pattern: str) -> None:
    """Raise ValueError if the pattern is invalid; without the library, as on a node, accept any."""
    try:
        from .patterns import check  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        return
    check(pattern)


def fit(texts: Iterable[str], labels: Labels) -> bool:
    """Return whether all of these matchers hold; raise ValueError for an invalid one."""
    return all(matcher(text).fits(labels) for text in texts)


def covered(texts: Iterable[str], labels: Labels) -> bool:
    """Return whether a silence with these matchers covers the whole incident; without matchers it never does.

    A silence of one node thus does not cover an incident of forty. ValueError for an invalid
    matcher.
    """
    asked = [matcher(text) for text in texts]
    return bool(asked) and all(one.covers(labels) for one in asked)


def labels_of(incident: Incident, racks: Mapping[str, str] | None = None) -> Labels:
    """Return the label values that an incident is matched by. `racks` maps a node's key to its rack."""
    subjects = [incident.subject, *_subjects(incident.members)]
    found: dict[str, Iterable[str | None]] = {
        "incident": [incident.id],
        "severity": [incident.severity.value],
        "fault": [incident.fault],
        "cluster": [one.cluster for one in subjects],
        "rack": [(racks or {}).get(one.of_node().key) for one in subjects],
        "node": [one.node for one in subjects],
        "gpu": [one.gpu for one in subjects],
        "device": [one.device for one in subjects],
        "port": [one.port for one in subjects],
        "owner": incident.impact.users,
        "account": incident.impact.accounts,
        "partition": incident.impact.partitions,
        "holder": incident.impact.holders,
        "simulated": ["true" if incident.simulated else "false"],
    }
    return {
        label: tuple(dict.fromkeys(value for value in values if value))
        for label, values in found.items()
    }


def _subjects(keys: Iterable[str]) -> Iterable[Subject]:
    for key in keys:
        try:
            yield Subject.parse(key)
        except ValueError:
            continue
