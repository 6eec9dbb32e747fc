"""Redaction: what one person may see of a record; the one place where names are removed.

Operators see names, and everybody sees their own and their team's. The roles `own` and `team` see all other
people as one, viewers see them as nobody in particular. After `pseudonyms_after` nobody sees a name.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text
from gpuvigil.model import UNREADABLE, Record, RecordKind

from .names import PEOPLE_KEYS, POD_KEYS, Names, gather
from .roles import Person, Role
from .tables import PACKED, Row, with_others

# `NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, name=train.py, ...`, and the collector's own
# `Xid 31: MMU fault [0000:9b:00.0, train.py (pid 4711)]`; a program's name may have blanks and commas.
_PROGRAM = re.compile(
    r"(\bname=).*?(?=, |$)"
    r"|(\[(?:nvswitch\d+, )?(?:[\da-fA-F]+:[\da-fA-F:.]+, )?(?:MIG instance \d+, )?)"
    r"[^\[\]]+?(?= \(pid \d+\))"
)
SOMEBODY, OTHERS = "someone", "others"
WITHHELD, TOO_OLD = "(shown to operators)", "(too old to be shown)"
# The key for pods' numbers in a dashboard without one of its own: it changes with each start.
_KEY = secrets.token_bytes(32)
# Free text by people, who may name anybody.
_WRITTEN = frozenset({"note", "held", "last_error", "receipt", "undo"})
_WRITTEN_OF = {
    RecordKind.SILENCE: frozenset({"reason"}),
    RecordKind.SCHEDULER: frozenset({"reason"}),
    RecordKind.JOB: frozenset({"reason"}),
}
# Reasons of steps and notices are gpuvigil's own, but some quote what somebody typed: a scheduler's reason for a
# drain, or whoever silenced an incident.
_QUOTING = {
    RecordKind.TRANSITION: frozenset({"reason"}),
    RecordKind.NOTICE: frozenset({"reason", "cause"}),
}
_QUOTED = frozenset({"out_of_service", "silenced"})  # verdicts
# Names of programs and jobs, chosen by their people.
_PROGRAMS = frozenset({"command", "name", "project"})
_PROGRAMS_OF = frozenset({RecordKind.ALLOCATION, RecordKind.JOB})
# Fields for machines: a user named like a state or a node changes none of them.
_MACHINE = frozenset(
    {
        *("id", "kind", "subject", "parent", "state", "states", "fault", "fingerprint", "severity"),
        *(
            "since",
            "updated_at",
            "resolved_at",
            "started_at",
            "ended_at",
            "seen_at",
            "at",
            "members",
        ),
        *("from_state", "to_state", "signal", "condition", "serial", "slot", "event", "verdict"),
        *("first_due_at", "sent_at", "due_at", "starts_at", "ends_at", "answered_at", "counted_at"),
        *(
            "watched_since",
            "nodes",
            "numbers",
            "models",
            "seconds",
            "detector",
            "held_state",
            "boot",
        ),
        *("places", "exit_code", "array", "partition", "partitions", "qos"),
    }
)
# The matchers of a silence that name somebody, whom no job may have named.
_NAMING = re.compile(r"\s*(owner|holder|account)\s*(=~|!~|!=|=)")


# Records that name people in a form from which nothing can be removed. Reports and their letters are
# gone when the days of names are over.
_OF_OPERATORS = frozenset({RecordKind.AUDIT, RecordKind.REPORT, RecordKind.LETTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pseudonyms:
    """The age after which names become pseudonyms, and the key they are made with."""

    after: timedelta
    key: bytes

    def of(self, name: str) -> str:
        """Return a pseudonym: the same for the same name and key, and not guessable without the key."""
        made = hmac.new(self.key, name.casefold().encode(), hashlib.sha256).hexdigest()
        return f"user-{made[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsView:
    """One person's view of the records; `names` are the names known so far."""

    person: Person
    names: Names = field(compare=False)
    pseudonyms: Pseudonyms | None = None
    key: bytes = field(default=_KEY, compare=False, repr=False)  # for pods' numbers

    @property
    def is_whole(self) -> bool:
        """Whether nothing at all is removed."""
        return self.person.is_operator and self.pseudonyms is None

    @property
    def rights(self) -> Hashable:
        """A value that is equal for all who see the same."""
        person = self.person
        if person.is_operator and self.pseudonyms is None:
            return person.role
        return person.role, person.name, person.users, person.teams, self.pseudonyms

    def records(self, records: Iterable[Record], now: datetime) -> tuple[Record, ...]:
        """Return the records that the person may see, redacted for them."""
        found = tuple(records)
        if self.is_whole:
            return found
        self.names.learn(found)
        shown = (self.record(one, now) for one in found)
        return tuple(one for one in shown if one is not None)

    def record(self, record: Record, now: datetime) -> Record | None:
        """Return the record redacted for the person; None where nothing of it may be shown."""
        if self.person.is_operator:
            old = self.pseudonyms is not None and self._end(record) < now - self.pseudonyms.after
            if not old or record.kind in _OF_OPERATORS:
                return record if not old or record.kind is RecordKind.AUDIT else None
        elif record.kind in _OF_OPERATORS or self._is_anothers_job(record):
            return None
        return _Redaction(self, record).made()

    def _is_anothers_job(self, record: Record) -> bool:
        if self.person.role.sees_rows_of_others or record.kind is not RecordKind.JOB:
            return False
        return not self.person.is_own(record.body.get("user"), record.body.get("account"))

    def is_own_user(self, name: str) -> bool:
        """Return whether a user name is the person's own, or belongs to a member of one of the person's teams."""
        person = self.person
        if name.casefold() in {one.casefold() for one in person.users}:
            return True
        return person.role is not Role.OWN and bool(self.names.teams(name) & person.teams)

    def _end(self, record: Record) -> datetime:
        """Return when what the record is about ended: what goes on, or belongs to an active incident, is not old."""
        if self.names.is_active(record.parent):
            return datetime.max.replace(tzinfo=record.at.tzinfo)
        return _own_end(record)

    def number(self, name: str) -> str:
        """Return a number: the same for the same name and key, and not guessable by trying names."""
        return hmac.new(self.key, name.encode(), hashlib.sha256).hexdigest()

    def owns(self, cluster: str, holder: str) -> bool:
        """Return whether all known owners of the holder are the person or their team."""
        owners = self.names.owners(cluster, holder)
        return bool(owners) and all(self.person.is_own(*one) for one in owners)


class _Redaction:
    """The redaction of one record."""

    def __init__(self, sight: RecordsView, record: Record) -> None:
        self._sight = sight
        self._person = sight.person
        self._record = record
        self._cluster = record.subject.partition("/")[0]
        body = record.body
        self._own = self._person.is_own(body.get("user"), body.get("account"))
        named: set[str] = set()
        gather(body, named)
        self._named = named

    def made(self) -> Record | None:
        record = self._record
        if self._own and not self._person.is_operator and record.kind in _PROGRAMS_OF:
            return record
        try:
            body = {key: self._value(key, value, record.body) for key, value in record.body.items()}
            if record.kind is RecordKind.WASTE:
                body["wastes"] = [self._waste(one) for one in record.body["wastes"]]
        except UNREADABLE:
            return None  # written by another version: what cannot be read cannot be shown
        return replace(record, id=self._id(), parent=self._parent(), body=body)

    def _id(self) -> str:
        """Return the id to show: an allocation's id contains its holder, and a pod's name may be a person's."""
        if self._record.kind not in _PROGRAMS_OF:
            return self._record.id
        return f"x-{self._sight.number(self._record.id)[:24]}"

    def _parent(self) -> str | None:
        parent = self._record.parent
        if parent is None or self._record.kind is not RecordKind.JOB:
            return parent
        return self.holder(parent)

    def _value(self, key: str, value: Any, around: Mapping[str, Any]) -> Any:
        if isinstance(value, Mapping):
            return {name: self._value(name, item, value) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(key, item, around) for item in value]
        if not isinstance(value, str) or not value:
            return value
        if key in PACKED and self._record.kind in PACKED[key]:
            return with_others(value, self)
        return self._text(key, value, around)

    def _text(self, key: str, value: str, around: Mapping[str, Any]) -> str:
        special = self._special(key, value, around)
        if special is not None:
            return special
        return value if key in _MACHINE else self.sentence(value)

    def _special(self, key: str, value: str, around: Mapping[str, Any]) -> str | None:
        """Return the text to show where it names people or was written by them; None for everything else."""
        if key == "by" and "kind" in around:
            return value  # how an incident ended, not a name
        shown = _SHOWN.get(key)
        if shown is not None:
            return shown(self, value)
        if key == "matchers" and (label := _NAMING.match(value)):
            return f'{label[1]}{label[2]}"{TOO_OLD if self._person.is_operator else WITHHELD}"'
        if key in _PROGRAMS and self._record.kind in _PROGRAMS_OF:
            return ""
        written = _WRITTEN_OF.get(self._record.kind, frozenset())
        if key in _WRITTEN or key in written or self._quotes(key, value, around):
            return self._written(value)
        return None

    def _quotes(self, key: str, value: str, around: Mapping[str, Any]) -> bool:
        """Return whether a reason quotes what somebody typed, as far as its record says."""
        if key not in _QUOTING.get(self._record.kind, ()):
            return False
        typed = self._record.body.get("snapshot", {}).get("body", {}).get("held")
        return around.get("verdict") in _QUOTED or bool(typed and typed in value)

    def _written(self, text: str) -> str:
        """Return free text for operators, old text without the known names; others do not see it."""
        if not self._person.is_operator:
            return WITHHELD
        return self._sight.names.without(text, self.user, self._named)

    def user(self, name: str) -> str:
        """Return the name to show for a person."""
        person = self._person
        if self._sight.pseudonyms is not None and person.is_operator:
            return name if name in person.users else self._sight.pseudonyms.of(name)
        return self._known_as(name)

    def signed(self, name: str) -> str:
        """Return the name to show for an author, who may be recorded by the name they sign in with."""
        if not self._person.is_operator and name and name == self._person.name:
            return name
        return self.user(name)

    @property
    def _nobody(self) -> str:
        return SOMEBODY if self._person.role.sees_rows_of_others else OTHERS

    def account(self, name: str) -> str:
        person = self._person
        return name if person.role.sees_rows_of_others or name in person.teams else OTHERS

    def pod(self, name: str) -> str:
        """Return the pod's name for its owners, and a number that reveals nothing for others."""
        if self._sight.owns(self._cluster, f"pod {name}"):
            return name
        return f"pod-{self._sight.number(name)[:8]}"

    def holder(self, holder: str) -> str:
        """Return the holder to show: a job's number names nobody; for roles without others' rows all others are one."""
        if self._sight.owns(self._cluster, holder):
            return holder
        if not self._person.role.sees_rows_of_others:
            return OTHERS
        return f"pod {self.pod(holder[4:])}" if holder.startswith("pod ") else holder

    def sentence(self, text: str) -> str:
        """Return a sentence of ours with its names as shown; in a kernel's line the program's name is removed too."""
        text = _PROGRAM.sub(r"\1\2…", text)
        if self._person.is_operator:  # old text: only the names that the record itself has
            return Names().without(text, self.user, self._named)
        return self._sight.names.without(text, self._known_as, self._named)

    def _known_as(self, name: str) -> str:
        return name if self._sight.is_own_user(name) else self._nobody

    def row(self, holder: str, user: str | None, account: str | None) -> Row:
        """Return the people of one row of a table as shown."""
        old = self._person.is_operator
        if self._person.is_own(user, account) and not old:
            return holder, user, account
        if old or self._person.role.sees_rows_of_others:
            return self.holder(holder), user and self.user(user), account
        return OTHERS, user and OTHERS, account and OTHERS

    def _waste(self, one: list[Any]) -> list[Any]:
        """Return a row of `accounting.efficiency` as shown: holder, user and account come first."""
        holder, user, account, *rest = one
        return [*self.row(holder, user, account), *rest]


def _own_end(record: Record) -> datetime:
    """Return the recorded end; the record's own time where there is none, and the far future if it goes on."""
    body = record.body
    if record.kind in {RecordKind.ALLOCATION, RecordKind.JOB} and not body.get("ended_at"):
        return datetime.max.replace(tzinfo=record.at.tzinfo)
    if record.kind is RecordKind.INCIDENT and not body.get("resolved_at"):
        return datetime.max.replace(tzinfo=record.at.tzinfo)
    try:
        if record.kind is RecordKind.SILENCE:
            return from_text(str(body["ends_at"]))
        return from_text(str(body.get("ended_at") or body["resolved_at"]))
    except (KeyError, ValueError):
        return record.at


# How the value of a key is shown, at any depth of a record.
_SHOWN: Mapping[str, Callable[[_Redaction, str], str]] = {
    **dict.fromkeys(PEOPLE_KEYS, _Redaction.signed),
    **dict.fromkeys(("user", "users"), _Redaction.user),
    **dict.fromkeys(POD_KEYS, _Redaction.pod),
    **dict.fromkeys(("holder", "holders"), _Redaction.holder),
    **dict.fromkeys(("account", "accounts"), _Redaction.account),
}
