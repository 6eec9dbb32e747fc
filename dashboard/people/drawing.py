"""Users, teams and one of them, as trees."""

from collections.abc import Mapping, Sequence

from accounting.hours_of_people import LEAST_HOURS, Amounts, JobUse, People, Person, change_percent
from gpuvigil.clock import moment
from gpuvigil.model import SIMULATED_CLUSTER

from ..layout.tree import Node, each, el, wide
from . import do_next
from .address import SPAN_NAMES, Asked
from .links import holder_link, person_link
from .money import Money
from .share_bar import bar, legend

_WHERE, _UTILISATION = "Where it went", "Utilisation"
MOST_PERSONS, MOST_JOBS, MOST_LINKED = 60, 40, 4
_TENFOLD = 900.0  # percent more
_LEAST_SHOWN = 0.05  # GPU-hours; what is less would be rounded to 0.0
_NOTE = (
    "Idle: allocated and at 0 %, however briefly, and not blocked. Blocked: allocated while an incident kept it from computing."
    " Utilisation: its mean while allocated, blocked hours included, where a job that hangs may read 100 %; the bar has"
    " used without them. Help: the advice on most GPU-hours. GPU-hours; clusters are never added together."
)
_INVENTED = (
    " The simulated cluster's prices are invented unless the configuration sets some for it."
)


def sentence(one: People, money: Money | None) -> Sequence[Node]:
    """The whole in one line; the team that left most idle leads to its page."""
    now = one.everybody.now
    if now.held <= 0:
        return ("No GPU was allocated in this span, as far as usage was counted.",)
    mean = "" if now.used_percent is None else f" at a mean utilisation of {now.used_percent:.0f} %"
    said = f"{_hours(now.held)} GPU-hours allocated{mean}; {_hours(now.idle)} idle{_change(one.everybody)}"
    if money and now.idle_cost is not None:
        said += f", {money.text(now.idle_cost)} {money.currency}"
    worst = max((it for it in one.teams if it.name), key=lambda it: it.now.idle, default=None)
    if worst is None or worst.now.idle < LEAST_HOURS or not one.teams[1:]:
        return (f"{said}.",)
    most = f" left most idle: {_hours(worst.now.idle)} GPU-hours"
    if money and worst.now.idle_cost is not None:
        most += f", {money.text(worst.now.idle_cost)} {money.currency}"
    return (f"{said}. Team ", person_link(worst.name, team=True), f"{most}.")


def _hours(amount: float) -> str:
    """Return GPU-hours; a little is not nothing, as the bar beside it shows."""
    return "< 0.1" if 0.0 < amount < _LEAST_SHOWN else f"{amount:,.1f}"


def _change(one: Person) -> str:
    if one.before is None:
        return ""
    change = change_percent(one.now.idle, one.before.idle)
    return "" if change is None else f" ({_signed(change)})"


def page(found: Sequence[People], asked: Asked, money: Mapping[str, Money]) -> list[Node]:
    """All, or the one user or team that is asked for; `money` by cluster, where there are prices."""
    shown = [one for one in found if asked.cluster in {"", one.cluster}]
    body = [node for one in shown for node in _cluster(one, asked, money.get(one.cluster))]
    if not shown:
        body = [el("p", "No usage was counted yet.", class_="empty", key="nothing")]
    invented = _INVENTED if any(one.cluster in money for one in shown if _simulated(one)) else ""
    return [_spans(asked), *body, el("p", _NOTE, invented, class_="sub", key="note")]


def _simulated(one: People) -> bool:
    return one.cluster == SIMULATED_CLUSTER


def _spans(asked: Asked) -> Node:
    chips = (
        el(
            "a",
            name,
            href=asked.with_span(value),
            class_="chip chosen" if asked.last == value else "chip",
            aria_current="true" if asked.last == value else None,
        )
        for value, name in SPAN_NAMES.items()
    )
    back = el("a", "All users and teams", href=asked.everybody) if asked.one else None
    said = el("span", "Last", class_="name")
    before = el("span", "compared with the period before", class_="name")
    return el("div", said, *chips, before, back, class_="row", key="spans")


def _cluster(one: People, asked: Asked, money: Money | None) -> list[Node]:
    mark = (
        el("span", "SIMULATED: no real hardware", class_="badge simulated")
        if _simulated(one)
        else None
    )
    start, end = one.span
    since = f", counted since {moment(one.counted_since)}" if one.counted_since else ""
    span = el("small", f"{moment(start)} to {moment(end)}{since}")
    head = el("h2", f"Cluster {one.cluster} ", mark, span, key=f"{one.cluster} head")
    if asked.one:
        return [head, *_one(one, asked, money)]
    line = el("p", el("b", *sentence(one, money)), key=f"{one.cluster} line")
    tiles = _tiles(one.everybody, money, one.cluster)
    teams = _table("Teams", one.teams, asked, money, team=True)
    users = _table("Users", one.users, asked, money, team=False)
    next_ = do_next.section(one.jobs, one.cluster, money)
    return each((head, line, tiles, next_, legend(), teams, users))


def _one(one: People, asked: Asked, money: Money | None) -> list[Node]:
    """A user or a team: its numbers against the span before, its people and its jobs."""
    listed = one.users if asked.user else one.teams
    name = asked.user or asked.team
    person = next((it for it in listed if it.name == name), None)
    if person is None:
        said = f"No GPU here was allocated to {name} in this span."
        return [el("p", said, class_="empty", key=f"{one.cluster} none")]
    jobs = [it for it in one.jobs if _is_of(it, asked)]
    return each(
        (
            _tiles(person, money, one.cluster),
            do_next.section(jobs, one.cluster, money) or _help(person, jobs, one.cluster),
            _belongs(person, asked, one.cluster),
            _jobs(jobs, one.cluster, money),
        )
    )


def _is_of(job: JobUse, asked: Asked) -> bool:
    return job.user == asked.user if asked.user else asked.team in job.team.split(", ")


def _tiles(one: Person, money: Money | None, cluster: str) -> Node:
    now, was = one.now, one.before
    amounts = [
        (
            "Allocated, GPU-hours",
            _hours(now.held),
            _against(now.held, None if was is None else was.held),
        ),
        (
            "Mean utilisation",
            "–" if now.used_percent is None else f"{now.used_percent:.0f} %",
            "" if was is None or was.used_percent is None else f"before {was.used_percent:.0f} %",
        ),
        (
            "Idle, GPU-hours",
            _hours(now.idle),
            _against(now.idle, None if was is None else was.idle),
        ),
        ("Blocked, GPU-hours", _hours(now.blocked), ""),
    ]
    if money:
        before = None if was is None else was.cost
        amounts.append(
            (
                f"Cost, {money.currency}",
                money.text(now.cost),
                "" if now.cost is None else _against(now.cost, before),
            )
        )
    tiles = (
        el("div", el("dt", name), el("dd", value), el("dd", beside, class_="beside"))
        for name, value, beside in amounts
    )
    return el("dl", *tiles, class_="tiles", key=f"{cluster} tiles")


def _against(now: float, before: float | None) -> str:
    if before is None:
        return "too little was counted before"
    change = change_percent(now, before)
    return f"before {before:,.1f}" + ("" if change is None else f", {_signed(change)}")


def _help(one: Person, jobs: Sequence[JobUse], cluster: str) -> Node | None:
    """What would help, and whose jobs it is about."""
    if not one.help:
        return None
    about = [it for it in jobs if it.help == one.help][:MOST_LINKED]
    names = [part for it in about for part in (" ", holder_link(cluster, it.holder))]
    return el("p", el("b", "What would help: "), f"{one.help}.", *names, key=f"{cluster} help")


def _belongs(one: Person, asked: Asked, cluster: str) -> Node | None:
    names = one.teams if asked.user else one.users
    if not names:
        return None
    links = [
        part
        for place, name in enumerate(names[:MOST_PERSONS])
        for part in (", " if place else " ", person_link(name, team=bool(asked.user)))
    ]
    return el("p", "Teams:" if asked.user else "Users:", *links, key=f"{cluster} belongs")


def _table(
    title: str, persons: Sequence[Person], asked: Asked, money: Money | None, *, team: bool
) -> Node:
    compared = any(it.before is not None for it in persons)
    # What is asked most comes first: a phone shows only the first few columns.
    names = [title[:-1], "Allocated", "Idle", *([f"Idle, {money.currency}"] if money else [])]
    names += [_WHERE, _UTILISATION, "Blocked", *([f"Cost, {money.currency}"] if money else [])]
    names += ["Allocated vs before", "Idle vs before"] if compared else []
    names += ["What would help"]
    rows = [_person(it, money, team=team, compared=compared) for it in persons[:MOST_PERSONS]]
    more = len(persons) - len(rows)
    return el(
        "section",
        el("h3", title, el("small", f"{len(persons)}, in GPU-hours, most first")),
        wide(
            el(
                "table",
                el("thead", el("tr", *(_head(name) for name in names))),
                el("tbody", *rows),
            ),
            title,
        )
        if rows
        else el("p", "nobody", class_="empty"),
        el("p", f"and {more:,} more", class_="more") if more else None,
        key=f"{title} {asked.cluster}",
    )


def _head(name: str) -> Node:
    text = name in {"Team", "User", "What would help", "Job", _WHERE}
    return el("th", name, scope="col", class_=None if text else "number")


def _person(one: Person, money: Money | None, *, team: bool, compared: bool) -> Node:
    now, was = one.now, one.before
    return el(
        "tr",
        el("th", person_link(one.name, team=team), scope="row"),
        _number(_hours(now.held)),
        _number(_hours(now.idle)),
        _number(money.text(now.idle_cost)) if money else None,
        el("td", bar(now)),
        _number("–" if now.used_percent is None else f"{now.used_percent:.0f} %"),
        _number(_hours(now.blocked)),
        _number(money.text(now.cost)) if money else None,
        _number(_percent(now.held, None if was is None else was.held)) if compared else None,
        _number(_percent(now.idle, None if was is None else was.idle)) if compared else None,
        el("td", one.help or "–"),
        key=one.name or "-",
    )


def _money(now: Amounts, money: Money | None) -> list[Node]:
    if money is None:
        return []
    return [_number(money.text(now.cost)), _number(money.text(now.idle_cost))]


def _percent(now: float, before: float | None) -> str:
    change = None if before is None else change_percent(now, before)
    return "–" if change is None else _signed(change)


def _signed(percent: float) -> str:
    """Return a change in words; a multiple from tenfold on, which nobody reads as a percentage."""
    return f"× {1.0 + percent / 100.0:,.0f}" if percent >= _TENFOLD else f"{percent:+.0f} %"


def _number(text: str) -> Node:
    return el("td", text, class_="number")


def _jobs(jobs: Sequence[JobUse], cluster: str, money: Money | None) -> Node:
    names = ["Job", "User", "Allocated", _UTILISATION, "Idle", "Blocked"]
    names += [f"Cost, {money.currency}", f"Idle, {money.currency}"] if money else []
    names += ["What would help"]
    rows = [
        el(
            "tr",
            el("th", holder_link(cluster, it.holder), scope="row"),
            el("td", person_link(it.user, team=False)),
            _number(_hours(it.now.held)),
            _number("–" if it.now.used_percent is None else f"{it.now.used_percent:.0f} %"),
            _number(_hours(it.now.idle)),
            _number(_hours(it.now.blocked)),
            *_money(it.now, money),
            el("td", it.help or "–"),
            key=f"{it.holder} {it.user}",
        )
        for it in jobs[:MOST_JOBS]
    ]
    more = len(jobs) - len(rows)
    head = el("tr", *(_head(name) for name in names))
    return el(
        "section",
        el("h3", "Jobs", el("small", f"{len(jobs)}, in GPU-hours, most first")),
        wide(el("table", el("thead", head), el("tbody", *rows)), "Jobs"),
        el("p", f"and {more:,} more", class_="more") if more else None,
        key=f"{cluster} jobs",
    )
