from dataclasses import replace
from datetime import timedelta

from dashboard.data.attention import attention
from dashboard.fleet import Fleet, IdentityCache
from gpuvigil.model import Severity

from .scene import NOON, busy_fleet, gpu, incident, node, notice


def test_the_same_is_made_once_and_of_something_else_anew() -> None:
    kept, made, one, other = IdentityCache(), list[str](), ["a"], ["a"]

    def make() -> int:
        made.append("")
        return len(made)

    assert [kept.get("it", (given,), make) for given in (one, one, other, one)] == [1, 1, 2, 3]
    assert kept.get("else", (one,), make) == 4


def test_clusters_stay_the_same_while_nothing_that_they_show_changes() -> None:
    fleet, facts = Fleet(), busy_fleet([node()])
    first = fleet.clusters(facts)
    lost = incident("gpu_lost", gpu(1), Severity.CRITICAL)
    told = replace(facts, notices=(notice(lost),))
    assert fleet.clusters(told) is first
    later = replace(told, now=facts.now + timedelta(seconds=1))
    assert fleet.clusters(later) is not first
    assert fleet.clusters(replace(later, incidents=(lost,)))[0].strip != first[0].strip


def test_an_order_that_is_kept_is_the_order_of_what_stands_now() -> None:
    kept, small = IdentityCache(), incident("gpu_lost", gpu(1), Severity.WARNING)
    worse = incident("gpu_lost", gpu(2), Severity.CRITICAL)
    notices = (notice(small),)
    (before,) = attention((small,), notices, NOON, kept=kept)
    (again,) = attention((small,), notices, NOON + timedelta(minutes=3), kept=kept)
    assert (before.delivery[0].text, again.delivery[0].text) == ("sent 0 s ago", "sent 3 min ago")
    both = attention((small, worse), notices, NOON, kept=kept)
    assert [(one.id, len(one.delivery)) for one in both] == [(worse.id, 0), (small.id, 1)]
