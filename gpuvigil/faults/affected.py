"""The subjects that an incident affects."""

from ..model import GroupKind, Incident
from .gpu_states import UNHEARD


def affected_keys(incident: Incident) -> tuple[str, ...]:
    """Return the keys of everything the incident says is affected: its subject and its members.

    An incident about several silent nodes of a rack, or nodes of an NVLink domain, has the group's first
    node as its subject and member, whether that node is affected or not. It is affected only if its GPUs
    are members, too.
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
