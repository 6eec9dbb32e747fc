"""What an incident says is hit."""

from ..model import Incident
from .gpu_states import UNHEARD


def struck(incident: Incident) -> tuple[str, ...]:
    """Keys of all that it says is hit: the subject and the members.

    What is told of silent nodes of a rack has the rack's first node for its subject and among
    its members, whether that is silent or not: only of a silent one its GPUs are there, too.
    """
    subject, members = incident.subject.key, incident.members
    keys = tuple(dict.fromkeys((subject, *members)))
    own = f"{subject}/"
    others = [key for key in members if not f"{key}/".startswith(own)]
    if incident.fault not in UNHEARD or not others:
        return keys
    gpus = [key for key in members if "/gpu/" in key]
    if not gpus:
        return members
    if any(key.startswith(own) for key in gpus):
        return keys
    return tuple(key for key in keys if key != subject)
