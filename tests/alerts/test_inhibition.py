"""What explains an incident is found quickly in a storm, and is what looking at everything finds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.routing.situation import Situation
from gpuvigil.config import InhibitSettings
from gpuvigil.matching.matchers import fit, labels_of
from gpuvigil.model import Incident, Subject
from tests.processor import allowed

from .examples import NOON, an_incident, seconds

FAULTS = ("a", "b", "c")
SIDES = st.sampled_from([*((f'fault="{one}"',) for one in FAULTS), ('severity="critical"',)])
RULES = st.lists(
    st.builds(
        InhibitSettings,
        by=SIDES,
        of=SIDES,
        same=st.sampled_from([(), ("node",), ("node", "gpu"), ("rack",)]),
    ),
    min_size=1,
    max_size=3,
)
RACKS = {"c/n0": "r0", "c/n1": "r0"}


def stands(number: int, fault: str, place: int) -> Incident:
    subject = Subject(cluster="c", node=f"n{place // 2}", gpu=f"GPU-{place}")
    return an_incident(
        id=f"i-{number}", fault=fault, subject=subject, since=NOON + seconds(number % 7)
    )


def explains(rules: list[InhibitSettings], one: Incident, other: Incident) -> bool:
    """The documented meaning of the rules, of two alone."""
    theirs, labels = labels_of(one, RACKS), labels_of(other, RACKS)
    return any(
        fit(rule.by, theirs)
        and fit(rule.of, labels)
        and not (fit(rule.by, labels) and fit(rule.of, theirs))
        and all(set(theirs[key]) & set(labels[key]) for key in rule.same)
        for rule in rules
    )


def behind(rules: list[InhibitSettings], one: Incident, all_: list[Incident]) -> set[str]:
    """All that it explains, also by what it explains."""
    found: set[str] = set()
    ahead = [one]
    while ahead:
        source = ahead.pop()
        more = [it for it in all_ if it.id not in found and explains(rules, source, it)]
        found |= {it.id for it in more}
        ahead += more
    return found


@given(
    rules=RULES,
    made=st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 5)), min_size=1, max_size=7),
)
def test_what_explains_it_is_what_looking_at_everything_finds(
    rules: list[InhibitSettings], made: list[tuple[str, int]]
) -> None:
    active = [stands(number, *one) for number, one in enumerate(made)]
    situation = Situation(active=tuple(active), racks=RACKS)
    for incident in active:
        others = [one for one in active if one.id != incident.id]
        ring = behind(rules, incident, others)
        wanted = next(
            (
                one.id
                for one in others
                if explains(rules, one, incident)
                and ((one.since, one.id) < (incident.since, incident.id) or one.id not in ring)
            ),
            None,
        )
        found = situation.inhibitor(rules, incident, labels_of(incident, RACKS))
        assert (found and found.id) == wanted


@pytest.mark.medium
def test_thousands_are_decided_about_in_seconds_while_thousands_stand() -> None:
    rules = [
        InhibitSettings(by=('fault="b"',), of=('fault="a"',), same=("node",)),
        InhibitSettings(by=('severity="critical"',), of=('fault="a"',), same=("gpu",)),
    ]
    active = tuple(stands(number, "a", number) for number in range(3000))
    situation = Situation(active=active)
    began = time.process_time()
    assert not any(situation.inhibitor(rules, one, labels_of(one)) for one in active)
    assert time.process_time() - began < allowed(10.0)  # looking at everything takes minutes
