"""The page of a node or an incident as HTML, Markdown and JSON: the first two have the same words."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil import __version__
from gpuvigil.clock import duration
from gpuvigil.markdown import text
from gpuvigil.model import GpuIdentity
from gpuvigil.numbers_in_words import NOT_MEASURED, counted
from gpuvigil.web.markup import Html, tag

from ..formats.html_document import document
from ..formats.json_format import plain
from .page import Account, Code, Cost, Page, Version

FORMAT = 1  # increases when a key changes its meaning or is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A heading and its content: sentences, a list, a table."""

    heading: str
    level: int = 2
    said: Sequence[str] = ()
    listed: Sequence[str] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def title(page: Page) -> str:
    """Return the page's title."""
    marked = "SIMULATED: " if page.simulated else ""
    return f"{marked}{page.about}: what failed, and on which part"


def blocks(page: Page) -> Iterator[Block]:
    """Yield the whole content, in order."""
    yield Block(heading=title(page), level=1, said=tuple(_summary(page)))
    yield Block(
        heading="Versions",
        heads=("What", "Value", "Since (UTC)"),
        rows=[(one.name, one.value, _since(one)) for one in page.versions],
    )
    yield Block(
        heading="GPUs",
        heads=("GPU", "Model", "Serial number", "UUID", "PCI address", "Part", "Firmware"),
        rows=[_gpu(one) for one in page.gpus],
    )
    yield Block(
        heading="Network ports",
        heads=("Port", "Kind", "Firmware"),
        rows=[(one.name, one.kind, one.firmware or NOT_MEASURED) for one in page.ports],
    )
    for one in page.incidents:
        yield from _account(one, page)
    yield Block(heading="What was not measured", listed=page.unmeasured)


def _summary(page: Page) -> Iterator[str]:
    if page.simulated:
        yield "This is a simulated cluster: no number here is of a real GPU."
    span = duration(page.made_at - page.start)
    amount = len(page.incidents) + page.more_incidents
    yield f"Cluster {page.cluster}, node {page.node}. {counted(amount, 'incident')} in {span}, from {_at(page.start)} to {_at(page.made_at)}."
    if page.more_incidents:
        yield f"The newest {len(page.incidents)} are shown; --last chooses a shorter span."
    if page.jobs_lost:
        hours = page.job_gpu_hours
        lost = "GPU-hours not known" if hours is None else f"at most {hours:,.1f} GPU-hours"
        yield f"{counted(page.jobs_lost, 'job')} ended by them: {lost}."
    if page.accepted is not None:
        yield f"{page.accepted.what}, {_at(page.accepted.at)}."
    names = "Names of people are in it." if page.with_people else "No names of people are in it."
    yield f"Made by gpuvigil {__version__}. {names}"


def _account(one: Account, page: Page) -> Iterator[Block]:
    until = one.until
    lasted = duration((until or page.made_at) - one.since)
    ends = "and still there" if until is None else f"until {_at(until)}"
    said = [f"{one.severity}, {one.state}: since {_at(one.since)} {ends}, {lasted}."]
    if one.serial or one.slot:
        said.append(
            f"The GPU had serial number {one.serial or 'unknown'} and sat at {one.slot or 'an unknown address'}."
        )
    hours = f"{one.gpu_hours_blocked:,.1f} GPU-hours" if one.gpus_blocked else "no GPU-hours"
    said.append(f"{counted(one.gpus_blocked, 'GPU')} blocked, {hours}.")
    said += [f"{one.history}."] if one.history else []
    said.append(f"Incident {one.id}, fault {one.fault}. Rule: {one.rule_from or 'unknown'}.")
    yield Block(heading=f"{one.title}: {one.where}", said=said)
    yield Block(
        heading="Evidence",
        level=3,
        heads=("What", "Measured", "Normal", "Peers"),
        rows=[(it.name, it.value, it.limit or "–", it.peers or "–") for it in one.evidence],
    )
    yield Block(
        heading="Xids",
        level=3,
        heads=("Code", "Meaning", "Times", "First (UTC)", "Last (UTC)", "Source"),
        rows=[_code(it) for it in one.codes],
    )
    kept = (
        f"{one.more_lines:,} later ones are left out."
        if one.lines
        else "None of its time was kept."
    )
    yield Block(
        heading="Kernel lines and events",
        level=3,
        said=[kept] if one.more_lines or not one.lines else (),
        listed=[
            f"{_at(it.at)} {it.where}: {it.text}"
            + (f" ({it.times:,} times)" if it.times > 1 else "")
            for it in one.lines
        ],
    )
    yield Block(
        heading="What happened and what was done",
        level=3,
        said=[f"{one.more_steps:,} earlier ones are left out."] if one.more_steps else (),
        listed=[f"{_at(it.at)} {it.what}" for it in one.steps],
    )
    yield Block(heading="Jobs that it ended", level=3, listed=[_cost(it) for it in one.jobs])
    yield Block(
        heading="The same fault on this part before",
        level=3,
        listed=[
            f"{_at(it.since)} to {_at(it.until)}: {it.ended_by}; {it.outcome}" for it in one.before
        ],
    )


def _cost(one: Cost) -> str:
    of = f" of {one.user}" if one.user else ""
    lost = "GPU-hours not known"
    if one.gpu_hours is not None:
        lost = f"{'at most ' if one.at_most else ''}{one.gpu_hours:,.1f} GPU-hours lost"
    gpus = "" if one.gpus is None else f", {counted(one.gpus, 'GPU')}"
    return f"{one.job}{of}{gpus}: ended at {_at(one.ended_at)}, {one.by}; {lost}"


def _code(one: Code) -> tuple[str, ...]:
    first, last = ("–" if it is None else _at(it) for it in (one.first, one.last))
    times = f"{one.times:,}" if one.times else "no line kept"
    return (f"{one.name} {one.mnemonic}", one.meaning, times, first, last, one.source)


def _gpu(one: GpuIdentity) -> tuple[str, ...]:
    firmware = (("VBIOS", one.vbios), ("InfoROM", one.inforom), ("GSP", one.gsp_firmware))
    said = ", ".join(f"{name} {value}" for name, value in firmware if value)
    values = (one.model, one.serial, one.uuid, one.pci_address, one.part_number, said)
    index = "–" if one.index is None else str(one.index)
    return (index, *(value or NOT_MEASURED for value in values))


def _since(one: Version) -> str:
    if one.since is None:
        return NOT_MEASURED
    return _at(one.since) + (" or before" if one.or_before else "")


def _at(moment: datetime) -> str:
    """Format a time with its year: a ticket is read long after."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _told(page: Page) -> Iterator[Block]:
    """Return the blocks that have content."""
    return (one for one in blocks(page) if one.level == 1 or one.said or one.listed or one.rows)


def html(page: Page) -> str:
    """Return the page as one self-contained HTML file without scripts."""
    return document(title(page), tag("article", *_html_parts(page)))


def _html_parts(page: Page) -> Iterator[Html]:
    for one in _told(page):
        yield tag(f"h{one.level}", one.heading)
        yield from (tag("p", it) for it in one.said)
        if one.listed:
            yield tag("ul", *(tag("li", it) for it in one.listed))
        if one.rows:
            head = tag("thead", tag("tr", *(tag("th", it, scope="col") for it in one.heads)))
            rows = (tag("tr", *(tag("td", cell) for cell in row)) for row in one.rows)
            table = tag("table", head, tag("tbody", *rows), aria_label=one.heading)
            yield tag("div", table, class_="wide")


def markdown(page: Page) -> str:
    """Return the page as Markdown, for a ticket."""
    return "\n".join(_markdown_lines(page)) + "\n"


def _markdown_lines(page: Page) -> Iterator[str]:
    for one in _told(page):
        if one.level > 1:
            yield ""
        yield f"{'#' * one.level} {text(one.heading)}"
        for it in one.said:
            yield from ("", text(it))
        if one.listed:
            yield from ("", *(f"- {text(it)}" for it in one.listed))
        if one.rows:
            yield from ("", _row(one.heads), f"|{'---|' * len(one.heads)}")
            yield from (_row([text(cell) for cell in row]) for row in one.rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def json_text(page: Page) -> str:
    """Return the page as JSON, for programs: times are text, null means not measured."""
    return json.dumps({"format": FORMAT, "page": plain(page)}, indent=1, ensure_ascii=False) + "\n"
