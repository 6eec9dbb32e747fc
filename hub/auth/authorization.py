"""Authorization: which records a token may write, about whom, and what a scheduler may read."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from accounting.usage.model import cluster_key
from gpuvigil.model import COLLECTOR_KINDS, SCHEDULER_KINDS, Record, RecordKind, Subject

from ..http.bearer import Bearer, Scope, foreign
from ..http.responses import Refused

# The command that issues a scheduler's token, as answers and the log show it.
MAKE_TOKEN = "gpuvigil token create --scope scheduler --cluster CLUSTER --name slurm"

Keys = Collection[tuple[str, str]]
_KINDS: Mapping[Scope, frozenset[RecordKind]] = {
    Scope.SERVICE: frozenset(RecordKind),
    Scope.COLLECTOR: COLLECTOR_KINDS,
    Scope.NODE: COLLECTOR_KINDS,
    # Which job a pod's GPUs belong to is unknown to its node.
    Scope.SCHEDULER: SCHEDULER_KINDS | {RecordKind.ALLOCATION},
}
# What `gpuvigil kubernetes` reads to resume its work.
_SCHEDULER_READS = frozenset({RecordKind.JOB, RecordKind.ALLOCATION, RecordKind.SCHEDULER})


def check_kinds(bearer: Bearer, kinds: Collection[RecordKind]) -> None:
    """Raise Refused (403) if the bearer may not write records of one of these kinds."""
    over = frozenset(kinds) - _KINDS.get(bearer.scope, frozenset())
    if not over:
        return
    names = ", ".join(sorted(kind.value for kind in over))
    more = f": a scheduler's token may ({MAKE_TOKEN})" if over <= SCHEDULER_KINDS else ""
    raise Refused(
        403, f"a {bearer.scope.value}'s token may not write records of kind {names}{more}"
    )


def check_subjects(
    bearer: Bearer, records: Sequence[Record], subjects: Callable[[Keys], Iterable[str]]
) -> None:
    """Raise Refused unless the bearer may write all of these records.

    403 when a record, or one that it would replace, is about a subject the bearer may not write
    for; 400 when its subject is malformed. A service may write about every subject.

    `subjects` returns the subjects of the stored records with some kinds and ids.
    """
    if bearer.scope is Scope.SERVICE:
        return
    for it in records:
        _check_form(it)
        if bearer.scope is Scope.SCHEDULER:
            _check_of_scheduler(it)
        elif it.parent is not None:
            raise Refused(403, f"{_named(it)} names a parent, which only services' records have")
    own = _WritableSubjects(bearer)
    if not own.unrestricted:
        for it in records:
            own.check_id(it)
            own.check(it.subject)
        for subject in subjects({(it.kind.value, it.id) for it in records}):
            own.check(subject)


def check_reading(bearer: Bearer, kinds: Collection[RecordKind]) -> str | None:
    """Return the key of the only cluster a bearer may read; None when it may read all clusters.

    Raise Refused (403) when a scheduler asks for kinds it does not need, or names none.
    """
    if bearer.scope is not Scope.SCHEDULER:
        return None
    if not kinds or not set(kinds) <= _SCHEDULER_READS:
        names = ", ".join(sorted(kind.value for kind in _SCHEDULER_READS))
        raise Refused(403, f"a scheduler's token may read records of kind {names} alone")
    return cluster_key(bearer.cluster) if bearer.cluster else None


class _WritableSubjects:
    """The subjects a bearer may write about: all, those of one cluster, or those of one node."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer
        self.unrestricted = bearer.writes_for_any_node
        if bearer.scope is Scope.SCHEDULER:
            self.unrestricted = not bearer.cluster
            self._whole, self._below = "", (f"{cluster_key(bearer.cluster)}/",)
        else:
            self._whole = Subject(cluster=bearer.cluster, node=bearer.node).key
            self._below = (f"{self._whole}/",)

    def check(self, subject: str) -> None:
        if subject != self._whole and not subject.startswith(self._below):
            raise Refused(403, foreign(self._bearer, subject))

    def check_id(self, it: Record) -> None:
        """Raise Refused (403) for an id of another subject: a record with it would keep theirs out."""
        below = (*self._below, f"{self._whole}|") if self._whole else self._below
        if it.id != self._whole and not it.id.startswith(below):
            raise Refused(403, foreign(self._bearer, f"a record with the id {it.id[:200]!r}"))
        if it.kind is RecordKind.INVENTORY and it.id != self._whole:
            raise Refused(403, foreign(self._bearer, it.id))


def _check_form(it: Record) -> None:
    """Raise Refused: 400 for a malformed subject, 403 for a due record, which only services write."""
    try:
        plain = Subject.parse(it.subject).key == it.subject
    except ValueError:
        plain = False
    if not plain:
        raise Refused(
            400, f"{_named(it)}: the subject {it.subject[:200]!r} names no node of a cluster"
        )
    if it.due_at is not None:
        raise Refused(403, f"{_named(it)} is due, which only services' records are")


def _check_of_scheduler(it: Record) -> None:
    """Raise Refused (403) when a record's id or parent does not belong to its subject."""
    if it.kind in {RecordKind.SCHEDULER, RecordKind.SWITCH, RecordKind.EQUIPMENT}:
        right = it.id == it.subject and it.parent is None
    elif it.kind is RecordKind.JOB:
        right = it.parent is not None and it.id.startswith(f"{it.subject}|{it.parent}|")
    else:
        pod = it.body.get("pod")
        right = it.parent is None and it.id.startswith(f"{it.subject}|pod {pod}|")
    if not right:
        raise Refused(403, f"{_named(it)} is of another than its subject and its parent")


def _named(it: Record) -> str:
    return f"the {it.kind.value} {it.id[:200]!r}"
