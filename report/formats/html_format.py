"""The report as one self-contained HTML file without scripts, made for reading and for printing."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from gpuvigil.config.reporting import PAPERS
from gpuvigil.numbers_in_words import counted
from gpuvigil.web.markup import Html, joined, tag

from ..model import formatting
from ..model.content import Action, Figure, Report
from . import charts, timeline
from .html_document import document
from .shared_sentences import coverage_words, made
from .tables import by_day, by_loss, by_state, rules, sheet_table, troubles


def html(reports: Sequence[Report], paper: str = PAPERS[0]) -> str:
    """Return the whole document: one article per cluster; it prints on A4 or letter."""
    title = ", ".join(report.title for report in reports)
    articles = (_article(one, f"r{n}") for n, one in enumerate(reports, 1))
    return document(f"{title}, {reports[0].span}", *articles, paper=paper)


def _article(report: Report, name: str) -> Html:
    """Return one cluster's report as an article."""
    under = _team_under(report) if report.team else _under(report)
    return tag(
        "article",
        _simulated(report),
        tag("h1", report.title, id=f"{name}-title"),
        tag("p", under, class_="under"),
        _verdict(report),
        _figures(report),
        _actions(report),
        *(_of_team(report) if report.team else _of_cluster(report, name)),
        _method(report),
        aria_labelledby=f"{name}-title",
    )


def _of_team(report: Report) -> Iterator[Html]:
    yield _sheets(
        report, "users", "projects", "partitions", "jobs", "energy", "work_lost", "network"
    )


def _of_cluster(report: Report, name: str) -> Iterator[Html]:
    yield _sheets(report, "losses", "owners", "teams")
    yield _unjudged(report)
    yield _over_time(report, name)
    yield _sheets(report, "users", "projects", "partitions", "jobs")
    if said := formatting.scattered(report):
        yield tag("p", said, class_="soft small")
    yield _states(report, name)
    yield _capacity(report)
    yield _sheets(report, "energy")
    yield _hardware(report)
    yield _sheets(report, "work_lost", "sizes", "offenders", "returns", "network", "cloud")
    yield _week(report, name)
    yield _rules(report)


def _under(report: Report) -> str:
    return f"{report.span} · {formatting.fleet(report)} · {formatting.in_service(report)} · {_covered(report)}"


def _team_under(report: Report) -> str:
    return f"{report.span} · up to {counted(report.gpus, 'GPU')} at once"


def _simulated(report: Report) -> Html:
    if not report.simulated:
        return Html("")
    text = "SIMULATED: this is a simulated cluster. No number here is of a real GPU."
    return tag("p", text, class_="simulated")


def _covered(report: Report) -> str:
    since = report.method.counted_since
    began = f"counted since {formatting.at(since)} · " if since is not None else ""
    return f"{began}coverage {formatting.percent(report.method.coverage_percent, 1)}"


def _verdict(report: Report) -> Html:
    first, second = report.verdict
    text = tag("p", tag("span", first.text, class_="first"), " ", second.text)
    worse = any(formatting.is_good(one) is False for one in report.figures) or report.actions
    return tag("div", text, class_="verdict look" if worse else "verdict")


def _figures(report: Report) -> Html:
    cards = tag("dl", *(_card(one, report.digits) for one in report.figures), class_="figures")
    changed = tag("p", report.revised, class_="small") if report.revised else Html("")
    return joined(cards, tag("p", report.comparison, class_="soft small"), changed)


def _card(figure: Figure, digits: int) -> Html:
    good = formatting.is_good(figure)
    kind = {True: "good", False: "bad", None: "soft"}[good]
    number, gap, unit = formatting.value(figure, digits).partition(formatting.GAP)
    change = formatting.change(figure, digits)
    return tag(
        "div",
        tag("dt", figure.label),
        tag(
            "dd",
            tag("div", number, tag("span", gap + unit, class_="unit"), class_="value"),
            tag("div", change, class_=f"change {kind}") if change else Html(""),
            tag("div", figure.note, class_="note"),
        ),
    )


def _rules(report: Report) -> Html:
    if not report.rules:
        return Html("")
    said = tag("p", formatting.noisiest(report), class_="soft small")
    return _section("Were the messages useful?", said, rules(report))


def _actions(report: Report) -> Html:
    body = [tag("ol", *map(partial(_action, report.currency), report.actions), class_="next")]
    if report.became:
        done = sum(one.done for one in report.became)
        said = f"Of the {len(report.became)} of the span before {done} {'is' if done == 1 else 'are'} done."
        rows = (tag("li", f"{one.text} ", tag("b", one.became)) for one in report.became)
        body += [tag("p", said, class_="soft small"), tag("ul", *rows, class_="next small")]
    if not report.actions and not report.became:
        return Html("")
    return _section("Do next", *(body if report.actions else body[1:]), together=True)


def _action(currency: str, one: Action) -> Html:
    saves = formatting.saves(one.gpu_hours_a_day, one.cost_a_day, currency)
    return tag("li", f"{one.text} ", tag("span", saves, class_="soft whole"))


def _sheets(report: Report, *keys: str) -> Html:
    """Return the tables with these keys, as far as they exist."""
    found = (one for key in keys if (one := report.sheet(key)) is not None and one.rows)
    return joined(*(_section(one.heading, sheet_table(one)) for one in found))


def _unjudged(report: Report) -> Html:
    if not report.unjudged:
        return Html("")
    return _section("What could not be judged", _list(report.unjudged))


def _over_time(report: Report, name: str) -> Html:
    drawn = timeline.over_time(report, f"{name}-time")
    said = tag("p", timeline.said_over_time(report), class_="soft small")
    table = by_day(report) if len(report.days) > 1 else Html("")
    figure = tag("figure", drawn) if drawn else Html("")
    return _section(f"Allocated against used, by {report.grain}", figure, said, table)


def _states(report: Report, name: str) -> Html:
    drawn = charts.where_they_went(report, f"{name}-went")
    if not drawn:
        return Html("")
    return _section(
        "Where the GPU-hours went", tag("figure", drawn), by_state(report), together=True
    )


def _capacity(report: Report) -> Html:
    if not report.installed_gpu_hours:
        return Html("")
    said = formatting.unjudged(report)
    note = tag("p", said, class_="soft small") if said else Html("")
    return _section(
        "GPUs in service", note, by_loss(report) if report.capacity.losses else Html("")
    )


def _hardware(report: Report) -> Html:
    counts = report.sheet("faults")
    if counts is None:
        return _section("Hardware incidents", tag("p", "None in this span."))
    return _section(counts.heading, sheet_table(counts), troubles(report))


def _week(report: Report, name: str) -> Html:
    drawn = charts.week(report, f"{name}-week")
    if not drawn:
        return Html("")
    said = (
        f"Percent of GPU-hours used, by weekday and hour in {report.time_zone};"
        " an empty field was not measured. "
    )
    words_ = tag("p", said + charts.said_week(report), class_="soft small")
    return _section("When the cluster is busy", tag("figure", drawn), words_, together=True)


def _method(report: Report) -> Html:
    method = report.method
    terms = (tag("div", tag("dt", term), tag("dd", text)) for term, text in method.definitions)
    body = [tag("p", one) for one in coverage_words(report)]
    body += [tag("dl", *terms), _list(method.notes), tag("p", made(report))]
    return tag("section", tag("h2", "Method and coverage"), *body, class_="method")


def _list(items: Iterable[str]) -> Html:
    return tag("ul", *(tag("li", item) for item in items))


def _section(heading: str, *body: str, together: bool = False) -> Html:
    return tag("section", tag("h2", heading), *body, class_="together" if together else None)
