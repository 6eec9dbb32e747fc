"""A short name of an incident, for places with room for a few words."""

from gpuvigil.model import Incident, Subject
from gpuvigil.numbers_in_words import counted

# The longest label in a line with other words, in characters; ours.
LONGEST = 40


def short_label(incident: Incident) -> str:
    """Return `switch leaf1` for `switch leaf1 (mlx5_0 of n1, n2, n3, n4 and 12 more nodes)`. For several
    nodes without a common name, the first and how many more. Empty if the incident has no label.
    """
    label = incident.label
    if len(label) <= LONGEST:
        return label
    name, bracket, _ = label.partition(" (")
    if bracket:
        return name
    nodes = {Subject.parse(key).of_node() for key in (incident.subject.key, *incident.members)}
    more = len(nodes) - 1
    return f"{min(nodes).node} and {counted(more, 'more node')}" if more else label
