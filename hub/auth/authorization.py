"""Authorization: which records a token may write, and about whom; of reading only a scheduler's."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from accounting.usage.model import cluster_key
from gpuvigil.model import COLLECTOR_KINDS, SCHEDULER_KINDS, Record, RecordKind, Subject

from ..http.bearer import Bearer, Scope, foreign
from ..http.responses import Refused

# How a scheduler gets a token of its own; people read it in an answer and in the log.
MAKE_TOKEN = "gpuvigil token create --scope scheduler --cluster CLUSTER --name slurm"

Keys = Collection[tuple[str, str]]
_KINDS: Mapping[Scope, frozenset[RecordKind]] = {
    Scope.SERVICE: frozenset(RecordKind),
    Scope.COLLECTOR: COLLECTOR_KINDS,
    Scope.NODE: COLLECTOR_KINDS,
    # Whose job a pod's GPUs are of, which its node does not know.
    Scope.SCHEDULER: SCHEDULER_KINDS | {RecordKind.ALLOCATION},
}
# What `gpuvigil kubernetes` goes on from.
_SCHEDULER_READS = frozenset({RecordKind.JOB, RecordKind.ALLOCATION, RecordKind.SCHEDULER})


def check_kinds(bearer: Bearer, kinds: Collection[RecordKind]) -> None:
    """Refused with 403 when a bearer may not write a record of one of these kinds."""
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
    """Refused with 403 when a record is, or would replace one, of somebody whom a bearer may not
    speak about; with 400 when it is none of its kind. A service may speak about everybody.

    `subjects` says whose the records of some kinds and ids are, as far as there are any.
    """
    if bearer.scope is Scope.SERVICE:
        return
    for it in records:
        _check_form(it)
        if bearer.scope is Scope.SCHEDULER:
            _check_told_by_scheduler(it)
        elif it.parent is not None:
            raise Refused(403, f"{_named(it)} names a parent, which only services' records have")
    own = _Own(bearer)
    if not own.anybody:
        for it in records:
            own.check_id(it)
            own.check(it.subject)
        for subject in subjects({(it.kind.value, it.id) for it in records}):
            own.check(subject)


def check_reading(bearer: Bearer, kinds: Collection[RecordKind]) -> str | None:
    """The key of the cluster to which a bearer's view is bound; None sees all clusters.

    Refused with 403 when a scheduler asks for other kinds than it needs, or names none.
    """
    if bearer.scope is not Scope.SCHEDULER:
        return None
    if not kinds or not set(kinds) <= _SCHEDULER_READS:
        names = ", ".join(sorted(kind.value for kind in _SCHEDULER_READS))
        raise Refused(403, f"a scheduler's token may read records of kind {names} alone")
    return cluster_key(bearer.cluster) if bearer.cluster else None


class _Own:
    """What a bearer may speak about: all, one cluster, or one node."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer
        self.anybody = bearer.writes_for_any_node
        if bearer.scope is Scope.SCHEDULER:
            self.anybody = not bearer.cluster
            self._whole, self._below = "", (f"{cluster_key(bearer.cluster)}/",)
        else:
            self._whole = Subject(cluster=bearer.cluster, node=bearer.node).key
            self._below = (f"{self._whole}/",)

    def check(self, subject: str) -> None:
        if subject != self._whole and not subject.startswith(self._below):
            raise Refused(403, foreign(self._bearer, subject))

    def check_id(self, it: Record) -> None:
        """An id that somebody else would use would keep their record out."""
        below = (*self._below, f"{self._whole}|") if self._whole else self._below
        if it.id != self._whole and not it.id.startswith(below):
            raise Refused(403, foreign(self._bearer, f"a record with the id {it.id[:200]!r}"))
        if it.kind is RecordKind.INVENTORY and it.id != self._whole:
            raise Refused(403, foreign(self._bearer, it.id))


def _check_form(it: Record) -> None:
    """Refused with 400 for a subject that is none, or for work, which is a service's."""
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


def _check_told_by_scheduler(it: Record) -> None:
    """Refused with 403 for an id or a parent that is not of the record's own subject."""
    if it.kind in {RecordKind.SCHEDULER, RecordKind.SWITCH}:
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
