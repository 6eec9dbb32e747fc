"""The subjects that an incident affects."""

from ..model import GroupKind, Incident
from .gpu_states import UNHEARD


def struck(incident: Incident) -> tuple[str, ...]:
    """Keys of all that it says is hit: the subject and the members.

    What is told of silent nodes of a rack, or of nodes of an NVLink domain, has its first node for its
    subject and among its members, whether that is hit or not: only of one that is hit its GPUs are
    there, too.
    """
    subject, members = incident.subject.key, incident.members
    keys = tuple(dict.fromkeys((subject, *members)))
    own = f"{subject}/"
    others = [key for key in members if not f"{key}/".startswith(own)]
    group = None if incident.group is None else incident.group.kind
    if (incident.fault not in UNHEARD and group is not GroupKind.NVLINK_DOMAIN) or not others:
        return keys
    gpus = [key for key in members if "/gpu/" in key]
    if not gpus:
        return members
    if any(key.startswith(own) for key in gpus):
        return keys
    return tuple(key for key in keys if key != subject)
