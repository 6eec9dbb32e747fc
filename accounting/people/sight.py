"""Redaction: what one person may see of a record; the one place where names are taken out.

Operators see names, everybody their own and their team's. To the roles of own jobs and of teams all
others are one; to viewers they are nobody in particular. After `pseudonyms_after` nobody sees a name.
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
# What a dashboard without a key of its own makes pods' numbers with: until its end.
_KEY = secrets.token_bytes(32)
# Written by people, who name whom they like.
_WRITTEN = frozenset({"note", "held", "last_error", "receipt", "undo"})
_WRITTEN_OF = {
    RecordKind.SILENCE: frozenset({"reason"}),
    RecordKind.SCHEDULER: frozenset({"reason"}),
    RecordKind.JOB: frozenset({"reason"}),
}
# Programs and jobs are named by their people.
_PROGRAMS = frozenset({"command", "name", "project"})
_PROGRAMS_OF = frozenset({RecordKind.ALLOCATION, RecordKind.JOB})
# What machines read: a user who is called like a state or a node changes none of it.
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
# Of a silence the matchers that name somebody, whom no job may have named.
_NAMING = re.compile(r"\s*(owner|holder|account)\s*(=~|!~|!=|=)")


# What names people in a form that nothing can be taken out of, and where it went. Reports and
# their letters are gone when the days of names are over.
_OF_OPERATORS = frozenset({RecordKind.AUDIT, RecordKind.REPORT, RecordKind.LETTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pseudonyms:
    """After how long people have one, and what it is made with."""

    after: timedelta
    key: bytes

    def of(self, name: str) -> str:
        """The same for the same name and key, and nothing that a dictionary finds without the key."""
        made = hmac.new(self.key, name.casefold().encode(), hashlib.sha256).hexdigest()
        return f"user-{made[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What this person sees; `names` are those that are known by now."""

    person: Person
    names: Names = field(compare=False)
    pseudonyms: Pseudonyms | None = None
    key: bytes = field(default=_KEY, compare=False, repr=False)  # of numbers that stand for pods

    @property
    def is_whole(self) -> bool:
        """Whether nothing at all is taken out."""
        return self.person.is_operator and self.pseudonyms is None

    @property
    def rights(self) -> Hashable:
        """The same for all who see the same."""
        person = self.person
        if person.is_operator and self.pseudonyms is None:
            return person.role
        return person.role, person.name, person.users, person.teams, self.pseudonyms

    def records(self, records: Iterable[Record], now: datetime) -> tuple[Record, ...]:
        """Those that the person may see, as they may see them."""
        found = tuple(records)
        if self.is_whole:
            return found
        self.names.learn(found)
        shown = (self.record(one, now) for one in found)
        return tuple(one for one in shown if one is not None)

    def record(self, record: Record, now: datetime) -> Record | None:
        """None where nothing of it is theirs."""
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

    def knows(self, name: str) -> bool:
        """Whether a cluster calls themselves so, or somebody of a team of theirs."""
        person = self.person
        if name.casefold() in {one.casefold() for one in person.users}:
            return True
        return person.role is not Role.OWN and bool(self.names.teams(name) & person.teams)

    def _end(self, record: Record) -> datetime:
        """When what it tells of was over: what goes on, or belongs to what does, is not old."""
        if self.names.stands(record.parent):
            return datetime.max.replace(tzinfo=record.at.tzinfo)
        return _own_end(record)

    def number(self, name: str) -> str:
        """The same for the same name and key, which nobody finds by trying names."""
        return hmac.new(self.key, name.encode(), hashlib.sha256).hexdigest()

    def owns(self, cluster: str, holder: str) -> bool:
        """Whether all that is known of a holder's people says that it is theirs."""
        owners = self.names.owners(cluster, holder)
        return bool(owners) and all(self.person.is_own(*one) for one in owners)


class _Redaction:
    """Of one record."""

    def __init__(self, sight: Sight, record: Record) -> None:
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
            return None  # of another version: what cannot be read cannot be shown
        return replace(record, id=self._id(), parent=self._parent(), body=body)

    def _id(self) -> str:
        """An allocation's holder is in its id, and a pod's name may be a person's."""
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
        """Of what names people or is written by them; None for all else."""
        if key == "by" and "kind" in around:
            return value  # how an incident ended, and nobody's name
        shown = _SHOWN.get(key)
        if shown is not None:
            return shown(self, value)
        if key == "matchers" and (label := _NAMING.match(value)):
            return f'{label[1]}{label[2]}"{TOO_OLD if self._person.is_operator else WITHHELD}"'
        if key in _PROGRAMS and self._record.kind in _PROGRAMS_OF:
            return ""
        written = _WRITTEN_OF.get(self._record.kind, frozenset())
        return self._written(value) if key in _WRITTEN or key in written else None

    def _written(self, text: str) -> str:
        """Operators read it, of what is old without the names that are known."""
        if not self._person.is_operator:
            return WITHHELD
        return self._sight.names.without(text, self.user, self._named)

    def user(self, name: str) -> str:
        """A person, as they are shown."""
        person = self._person
        if self._sight.pseudonyms is not None and person.is_operator:
            return name if name in person.users else self._sight.pseudonyms.of(name)
        return self._known_as(name)

    def signed(self, name: str) -> str:
        """Whose word it is: there people stand by the name that they sign in with."""
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
        """Of a pod a number that says nothing."""
        if self._sight.owns(self._cluster, f"pod {name}"):
            return name
        return f"pod-{self._sight.number(name)[:8]}"

    def holder(self, holder: str) -> str:
        """A job's number names nobody; to who sees only their own all other holders are one."""
        if self._sight.owns(self._cluster, holder):
            return holder
        if not self._person.role.sees_rows_of_others:
            return OTHERS
        return f"pod {self.pod(holder[4:])}" if holder.startswith("pod ") else holder

    def sentence(self, text: str) -> str:
        """Words of ours with whose names are in them; a kernel's line has a program's as well."""
        text = _PROGRAM.sub(r"\1\2…", text)
        if self._person.is_operator:  # of what is old: whom it names itself
            return Names().without(text, self.user, self._named)
        return self._sight.names.without(text, self._known_as, self._named)

    def _known_as(self, name: str) -> str:
        return name if self._sight.knows(name) else self._nobody

    def row(self, holder: str, user: str | None, account: str | None) -> Row:
        """Of a table whose rows have their people in them."""
        old = self._person.is_operator
        if self._person.is_own(user, account) and not old:
            return holder, user, account
        if old or self._person.role.sees_rows_of_others:
            return self.holder(holder), user and self.user(user), account
        return OTHERS, user and OTHERS, account and OTHERS

    def _waste(self, one: list[Any]) -> list[Any]:
        """A row of `accounting.efficiency`: holder, user and account come first."""
        holder, user, account, *rest = one
        return [*self.row(holder, user, account), *rest]


def _own_end(record: Record) -> datetime:
    """When it was over by its own word; when it was told where it has none."""
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


# How what stands under a key is shown, wherever in a record that is.
_SHOWN: Mapping[str, Callable[[_Redaction, str], str]] = {
    **dict.fromkeys(PEOPLE_KEYS, _Redaction.signed),
    **dict.fromkeys(("user", "users"), _Redaction.user),
    **dict.fromkeys(POD_KEYS, _Redaction.pod),
    **dict.fromkeys(("holder", "holders"), _Redaction.holder),
    **dict.fromkeys(("account", "accounts"), _Redaction.account),
}
