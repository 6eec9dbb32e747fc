"""A flood of new series is refused and named; what was known goes on."""

from datetime import datetime, timedelta, timezone

import pytest

from hub.telemetry.batch import read_bodies
from hub.telemetry.body import Body
from hub.telemetry.series_limit import SeriesLimiter, head_of, node_of

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def series(most: int = 3, nodes: int = 2) -> SeriesLimiter:
    return SeriesLimiter(most, nodes, lambda: NOON)


def a_body(*rows: str) -> Body:
    return Body(
        text="\n".join(rows).encode(),
        precision="ns",
        received_at=NOON,
        identity=None,
        done=lambda _: None,
    )


def lines(uuids: range, node: str = "n", more: str = "") -> list[str]:
    return [f"gpu,cluster=c,node={node},uuid=u{i} up=1i{more} 5" for i in uuids]


@pytest.mark.parametrize("more", ["", ',note="x"'], ids=["plain", "quoted"])
def test_new_series_beyond_the_limit_are_refused_line_by_line_and_known_ones_go_on(
    more: str,
) -> None:
    known = series()
    bodies = [a_body(*lines(range(20), more=more)), a_body(*lines(range(3), "m", more=more))]
    tables, (flood, other) = read_bodies(bodies, known)
    assert (flood.lines, other.lines) == (3, 3)
    assert [it.number for it in flood.refused] == list(range(4, 21))
    assert "a new series of c/n, which has more than 3 series" in flood.refused[0].reason
    assert tables["gpu"].num_rows == 6
    _, (again,) = read_bodies([a_body(*lines(range(3), more=more))], known)
    assert (again.lines, again.refused) == (3, ())
    (named,) = known.floods()
    assert (named.cluster, named.node, named.lines) == ("c", "n", 17)


def test_more_nodes_than_allowed_are_refused() -> None:
    known = series(nodes=2)
    bodies = [a_body(*lines(range(2), node)) for node in "abc"]
    _, outcomes = read_bodies(bodies, known)
    assert [it.lines for it in outcomes] == [2, 2, 0]
    assert "c/c, which is one of more than 2 nodes" in outcomes[2].refused[0].reason


@pytest.mark.parametrize("more", ["", ',note="x"'], ids=["plain", "quoted"])
def test_names_that_nobody_could_ask_for_are_refused(more: str) -> None:
    longest = "u" * 254 + r"\ "  # a space is one sign of 256, and two as it is written
    rows = [
        f"gpu,cluster=c,node=n,uuid={uuid} up=1i{more} 5"
        for uuid in (longest + "u", longest + "uu")
        for _ in range(20)
    ]
    tables, (outcome,) = read_bodies([a_body(*rows)], series())
    assert tables["gpu"]["uuid"].unique().to_pylist() == ["u" * 254 + " u"]
    assert [it.number for it in outcome.refused] == list(range(21, 41))
    assert "more than 256 signs" in outcome.refused[0].reason


@pytest.mark.parametrize("more", ["", ',note="x"'], ids=["plain", "quoted"])
@pytest.mark.parametrize("odd", ["cluster=.", "node=..", "uuid=.."])
def test_names_of_which_no_record_could_speak_are_refused(odd: str, more: str) -> None:
    tags = {"cluster": "c", "node": "n..1", "uuid": "u."}
    rows = [",".join(f"{key}={value}" for key, value in tags.items())] * 20
    tags |= dict([odd.split("=")])
    rows += [",".join(f"{key}={value}" for key, value in tags.items())] * 20
    body = a_body(*(f"gpu,{row} up=1i{more} 5" for row in rows), "sh,path=.. files=1 5")
    tables, (outcome,) = read_bodies([body], series())
    assert tables["gpu"].num_rows == 20
    assert [it.number for it in outcome.refused] == list(range(21, 41))
    assert outcome.refused[0].reason == "'.' and '..' are no names"


def test_what_does_not_come_for_a_day_makes_room_and_what_comes_keeps_its_place() -> None:
    now = [NOON]
    known = SeriesLimiter(2, 9, lambda: now[0])
    heads = [f"gpu,node=n,uuid={i}" for i in range(4)]
    assert [known.admit(head) is None for head in heads] == [True, True, False, False]
    now[0] += timedelta(hours=12)
    assert known.admit(heads[0]) is None
    assert known.admit(heads[2]) is None
    assert known.admit(heads[1]) is None  # it is not new
    now[0] += timedelta(hours=24)
    assert known.admit(heads[3]) is None


@pytest.mark.parametrize(
    ("head", "node"),
    [
        ("gpu,cluster=c,node=n", ("c", "n")),
        ("gpu,node=a\\ b\\,c\\=d", ("", "a b,c=d")),
        ("gpu", ("", "")),
        ("gpu,node=", None),
        ("gpu,node=a,node=b", None),
        ("gpu,node", None),
        ("", None),
        ("#gpu,node=a", None),
    ],
)
def test_the_node_is_read_from_a_head(head: str, node: tuple[str, str] | None) -> None:
    assert node_of(head) == node


def test_a_head_is_made_as_it_is_read() -> None:
    assert node_of(head_of("gpu", ("cluster", "node"), ("a b", "c,d=e"))) == ("a b", "c,d=e")
