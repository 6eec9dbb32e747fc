"""Every output says the same numbers, and they are those of `Usage`."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import HOUR, Waste, WasteHour
from accounting.usage import Usage
from accounting.usage.model import floor
from gpuvigil.config import CostSettings, PriceSettings
from gpuvigil.model import SIMULATED_CLUSTER
from report.formats.csv_format import COLUMNS, csv_text
from report.formats.html_document import POLICY
from report.formats.html_format import html
from report.formats.json_format import json_text
from report.formats.markdown_format import markdown, summary
from report.formats.pdf_format import pdf
from report.model import formatting
from report.model import sheet as report_sheet
from report.model.content import Report
from report.model.sheet import Kind
from report.sections.build import build
from tests.report.pagetext import Page, page
from tests.report.pdftext import pages
from tests.report.weeks import (
    END,
    START,
    WEEK,
    bucket,
    eventful,
    facts,
    gpu,
    idle,
    incident,
    nothing,
    share,
    usage,
)
from tests.servers import ROOT

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script><img src=x onerror=y>|`*_[a](https://evil.example) @all =1+1"


@pytest.fixture(scope="module")
def report() -> Report:
    return build(eventful())


@pytest.fixture(scope="module")
def document(report: Report) -> str:
    return html([report])


@pytest.fixture(scope="module")
def shown(document: str) -> Page:
    return page(document)


@pytest.fixture(scope="module")
def data(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_text([report]))["reports"][0]
    return found


def table(shown: Page, beginning: str) -> list[list[str]]:
    return next(rows for caption, rows in shown.tables.items() if caption.startswith(beginning))


def table_of(shown: Page, sheet: report_sheet.Sheet) -> list[list[str]]:
    """The rows of one of the report's tables; several may have the same caption."""
    heads = [one.label for one in sheet.shown.columns]
    return next(rows for rows in shown.listed if rows[0] == heads)


def sections(text: str) -> dict[str, list[list[str]]]:
    """The tables of a Markdown report by heading, cell by cell."""
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        rows = [line for line in body.splitlines() if line.startswith("| ")]
        found[heading] = [[_unescaped(cell) for cell in row[2:-2].split(" | ")] for row in rows]
    return found


def _unescaped(cell: str) -> str:
    return re.sub(r"\\(.)", r"\1", cell).strip()


def test_the_numbers_are_those_of_usage_itself(report: Report) -> None:
    counted = eventful().usage
    seconds = counted.seconds
    assert report.figure("in_service_percent").value == report.capacity.in_service_percent == 95.0
    assert report.installed_gpu_hours == round(seconds.installed / 3600)
    assert report.allocated_gpu_hours == round(seconds.allocated / 3600)
    for part in report.parts:
        assert abs(part.gpu_hours - getattr(seconds, part.state) / 3600) <= 1
    assert counted.allocated_percent is not None
    assert counted.used_percent is not None
    assert report.figure("allocated_percent").value == round(counted.allocated_percent)
    assert report.figure("used_of_allocated_percent").value == round(counted.used_percent)
    energy = report.figure("energy_kwh").value
    assert energy == pytest.approx(seconds.energy_joules / 3.6e6, rel=0.005)
    jobs = report.sheet("jobs")
    assert jobs is not None
    shares = {one.holder: one for one in counted.shares}
    for job, user, _, gpus, held, *_ in jobs.rows:
        one = shares[str(job)]
        assert (user, gpus) == (one.user, one.gpus)
        assert held == round(one.allocated / 3600)


class Sheet:
    """The CSV's values; each that was compared is crossed off."""

    def __init__(self, text: str) -> None:
        rows = list(csv.DictReader(io.StringIO(text)))
        assert tuple(rows[0]) == COLUMNS
        self.left = {(row["section"], row["item"], row["name"]): row["value"] for row in rows}
        assert len(self.left) == len(rows)

    def same(self, section: str, item: str, one: dict[str, Any], names: dict[str, str]) -> None:
        """`names` of the CSV have the values that `one` has under the keys of the JSON."""
        for name, key in names.items():
            text = self.left.pop((section, item, name))
            assert (None if text == "" else float(text)) == one[key], (section, item, name)


def test_the_page_names_every_section_and_name_of_the_csv() -> None:
    source = (ROOT / "report/formats/csv_format.py").read_text()
    told = {line for line in (ROOT / "docs/report.md").read_text().splitlines() if line[:1] == "|"}
    written = set(re.findall(r'Row\("(\w+)", [^,]+, "(\w+)"', source))
    assert len(written) > 50
    for section, name in written:
        (line,) = (one for one in told if f"`{section}`" in one.split("|")[1])
        assert f"`{name}`" in line, (section, name)


def test_the_csv_has_every_number_of_the_json(report: Report, data: dict[str, Any]) -> None:
    sheet = Sheet(csv_text([report]))
    for key, one in data["figures"].items():
        known = ["value", "change", *(["low", "high"] if one["low"] is not None else [])]
        sheet.same("figure", key, one, {name: name for name in known})
    for one in data["parts"]:
        sheet.same("state", one["state"], one, {"gpu_hours": "gpu_hours", "share": "percent"})
    sheet.same("state", "installed", data, {"gpu_hours": "installed_gpu_hours"})
    for one in data["capacity"]["losses"]:
        lost = {"lost_gpu_hours": "gpu_hours", "share": "percent"}
        sheet.same("capacity", one["lost_to"], one, lost)
    amounts = ("owned_gpu_hours", "in_service_gpu_hours", "in_service_percent")
    sheet.same("capacity", "", data["capacity"], {n: n for n in (*amounts, "unjudged_gpu_hours")})
    for key, found in data["sheets"].items():
        listed = {str(n): one for n, one in enumerate(found["rows"], 1)}
        for item, one in {**listed, **({"all": found["all"]} if found["all"] else {})}.items():
            cells = dict(cells_of(one))
            sheet.same(key, item, cells, {name: name for name in cells})
    sheet.same("scattered", "", data, {"gpu_hours": "scattered_gpu_hours"})
    for number, one in enumerate(data["actions"], 1):
        sheet.same("action", str(number), one, {"gpu_hours_a_day": "gpu_hours_a_day"})
    answered = {name: name for name in ("noise", "useful", "incidents", "unjudged")}
    for one in data["rules"]:
        sheet.same("rule", one["rule"], one, answered)
    times_match(sheet, data)
    hardware_matches(sheet, data)
    counts = {name: name for name in ("quarters", "quarters_missing")}
    sheet.same("method", "", data["method"], {"coverage": "coverage_percent", **counts})
    numbers = {key[2] for key, value in sheet.left.items() if re.fullmatch(r"[\d.]+", value)}
    rest = {"gpus", "nodes", "hours_judged", "step", "version", "collector_version"}
    assert numbers <= rest


def cells_of(row: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The numbers of a row by the names that the CSV has for them."""
    for name, cell in row.items():
        if isinstance(cell, list):
            parts = ("low", "high") if len(cell) == 2 and "hours" in name else range(1, 9)
            yield from ((f"{name}_{part}", one) for part, one in zip(parts, cell, strict=False))
        elif not isinstance(cell, str):
            yield name, cell


def times_match(sheet: Sheet, data: dict[str, Any]) -> None:
    by_day = {
        "allocated": "allocated_percent",
        "used_of_allocated": "used_of_allocated_percent",
        "allocated_gpu_hours": "allocated_gpu_hours",
        "unavailable_gpu_hours": "unavailable_gpu_hours",
    }
    for one in data["days"]:
        sheet.same("day", one["day"], one, by_day)
    for one in data["points"]:
        sheet.same(
            "time", one["at"], one, {"allocated": "allocated_percent", "used": "used_percent"}
        )
    for one in data["hours"]:
        item = f"{formatting.WEEKDAYS[one['weekday']]} {one['hour']:02d}"
        sheet.same("week", item, one, {"used": "used_percent"})


def hardware_matches(sheet: Sheet, data: dict[str, Any]) -> None:
    for number, one in enumerate(data["troubles"], 1):
        sheet.same("incident", str(number), one, {"hours": "hours", "gpus": "gpus"})
    sheet.same("incident", "more", data, {"incidents": "more_troubles"})


def test_html_and_markdown_have_the_same_tables(report: Report, shown: Page) -> None:
    marked = sections(markdown([report]))
    assert table(shown, "The same by day") == marked["Allocated against used, by day"]
    states = [[row[0], *row[2:]] for row in table(shown, "GPU-hours by state")]
    assert states == marked["Where the GPU-hours went"]
    losses = [[row[0], *row[2:]] for row in table(shown, "GPU-hours in service")]
    assert losses == marked["GPUs in service"]
    for sheet in report.sheets:
        trends = [one.kind is Kind.TREND for one in sheet.shown.columns]
        drawn = table_of(shown, sheet)
        for row, one in zip(drawn, marked[sheet.heading], strict=True):
            for cell, text, trend in zip(row, one, trends, strict=True):
                assert cell == text or trend, sheet.key
    assert table(shown, "Answers to messages") == marked["Were the messages useful?"]
    worst = marked["The worst incidents"][1:]
    listed = table(shown, "The worst first")[1:]
    for row, one in zip(listed, worst, strict=True):
        assert [re.sub(r"^\d ?", "", row[0]), *row[2:]] == [one[0], *one[2:6]]
        assert row[1].startswith(one[1])
        assert all(said in row[1] for said in one[6:])


def test_html_has_the_numbers_of_the_json(
    report: Report, shown: Page, data: dict[str, Any]
) -> None:
    for one in report.figures:
        number = formatting.value(one, report.digits).partition(formatting.GAP)[0]
        place = shown.words.index(one.label)
        assert shown.words[place + 1] == number
        change = formatting.change(one, report.digits).replace(formatting.GAP, " ")
        assert not change or change in shown.words[place + 1 : place + 5]
    for row, one in zip(table(shown, "GPU-hours by state")[1:], data["parts"], strict=False):
        assert (_number(row[2]), _number(row[3])) == (one["gpu_hours"], one["percent"])
    found = data["capacity"]
    losses = table(shown, "GPU-hours in service")[1:]
    for row, one in zip(losses, found["losses"], strict=False):
        assert (_number(row[2]), _number(row[3])) == (one["gpu_hours"], one["percent"])
    assert [_number(row[2]) for row in losses[4:]] == [
        found["in_service_gpu_hours"],
        found["owned_gpu_hours"],
    ]
    cells = [text for text in shown.words if re.fullmatch(r"\d{1,3}", text)]
    for one in data["hours"]:
        if one["used_percent"] is not None:
            assert f"{one['used_percent']:.0f}" in cells


def test_html_has_the_numbers_of_every_table(
    report: Report, shown: Page, data: dict[str, Any]
) -> None:
    for sheet in report.sheets:
        found = data["sheets"][sheet.key]["rows"]
        for row, one in zip(table_of(shown, sheet)[1:], found, strict=False):
            numbers = [(c, n) for c, n in zip(row, one.values(), strict=True) if type(n) is float]
            for cell, number in numbers:
                assert abs(_number(cell)) == abs(number), sheet.key


def _number(text: str) -> float:
    thousands = text.endswith(("MWh", f"{formatting.GAP}t", " t"))
    return float(re.sub(r"[^\d.]", "", text)) * (1_000 if thousands else 1)


@pytest.mark.server  # drawing a PDF takes seconds
def test_the_pdf_has_every_row_and_every_figure_of_the_html(document: str, shown: Page) -> None:
    drawn = pages(pdf(document))
    text = _squeezed("".join(drawn))
    for rows in shown.tables.values():
        for row in rows:
            assert _squeezed("".join(row)) in text, row
    for said in shown.words[shown.words.index("In service") : shown.words.index("Do next")]:
        assert _squeezed(said) in text
    for number, one in enumerate(drawn, 1):
        assert f"Page{number}of{len(drawn)}" in _squeezed(one)


def _squeezed(text: str) -> str:
    return "".join(text.replace("\u00a0", " ").split()).replace("\u2011", "-")


def test_the_verdict_and_the_method_are_in_every_output(report: Report, shown: Page) -> None:
    outputs = {
        "html": " ".join(shown.words),
        "md": _unescaped(markdown([report])),
        "csv": csv_text([report]).replace('""', '"'),
        "json": json_text([report]),
    }
    for name, text in outputs.items():
        plain = " ".join(text.replace("\u00a0", " ").split())
        sentences = [one.text for one in report.verdict] + [one.text for one in report.actions]
        for said in (*sentences, *(text for _, text in report.method.definitions)):
            assert " ".join(said.replace("\u00a0", " ").split()) in plain, name
        for note in report.method.notes:
            assert note in plain, name
        assert "login" in plain, name
        assert "to a job, where Slurm or Kubernetes say so, else to a process" in plain, name


def test_nowhere_is_money(report: Report, document: str) -> None:
    for text in (document, markdown([report]), csv_text([report]), json_text([report])):
        assert "$" not in text
        assert "€" not in text


def test_with_a_price_every_output_says_what_the_idle_hours_cost() -> None:
    settings = CostSettings(
        currency="CHF", carbon_grams=400.0, prices=(PriceSettings(per_gpu_hour=2.0),)
    )
    counted = facts(usage([share(quiet=0.3)]))
    priced = build(replace(counted, prices=Prices(settings=settings)))
    hours = priced.figure("idle_held_gpu_hours").value
    assert hours is not None
    cost = float(round(2.0 * hours))
    losses = priced.sheet("losses")
    assert losses is not None
    (idle_row,) = [row for row in losses.rows if row[0] == "allocated but idle"]
    assert cost in idle_row
    shown = page(html([priced]))
    said = f"{cost:,.0f}"
    assert f"{said} CHF" in " ".join(one.text for one in priced.verdict)
    assert said in next(row for row in table_of(shown, losses) if row[0] == "allocated but idle")
    found = json.loads(json_text([priced]))["reports"][0]
    assert found["currency"] == "CHF"
    cells = [row for row in csv.reader(io.StringIO(csv_text([priced]))) if row[2] == "losses"]
    assert ["cost", f"{cost:g}", "CHF"] in [row[4:] for row in cells]
    assert any("2.00 CHF a GPU-hour" in note for note in priced.method.notes)
    assert any("kg CO2e (estimate: 400 g/kWh" in note for note in priced.method.notes)


def test_who_got_little_is_told_in_every_output_with_hours_and_money() -> None:
    little = [
        Waste(f"job {n}", "ann", None, None, "H100", "the batch can grow", 4, 2.5 - n / 10)
        for n in range(13)
    ]
    hours = tuple(
        WasteHour(cluster="alpha", start=START + n * HOUR, wastes=tuple(little), scattered_gpus=3)
        for n in range(2)
    )
    priced = Prices(
        settings=CostSettings(currency="CHF", prices=(PriceSettings(per_gpu_hour=2.0),))
    )
    many = [share(f"job {n}", "ann", 4) for n in range(13)]
    for prices in (priced, Prices()):
        found = facts(usage(many, gpus=64), prices=prices)
        report = build(replace(found, now=replace(found.now, wastes=hours)))
        sheet = report.sheet("jobs")
        assert sheet is not None
        shown, marked = page(html([report])), sections(markdown([report]))
        assert table_of(shown, sheet) == marked["Jobs that wasted most"]
        assert marked["Jobs that wasted most"][1][-1] == "the batch can grow"
        assert ("CHF" in " ".join(marked["Jobs that wasted most"][0])) is bool(prices)
        assert "Free GPUs lay scattered" in " ".join(shown.words)
        one = json.loads(json_text([report]))["reports"][0]["sheets"]["jobs"]["rows"][0]
        assert one["wasted_gpu_hours"] == 5.0
        assert one.get("wasted_cost") == (10.0 if prices else None)
        cells = [row[2:] for row in csv.reader(io.StringIO(csv_text([report])))]
        assert ["scattered", "", "gpu_hours", "6", "GPU-hours"] in cells


def test_the_html_has_no_script_and_fetches_nothing(document: str, shown: Page) -> None:
    assert "http" not in document.replace("http-equiv", "")
    assert not re.search(r"url\(|@import|javascript:|\bsrc=|\bhref=", document)
    for tag, attributes in shown.tags:
        assert tag not in {
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "a",
        }
        assert not any(name.startswith("on") for name in attributes)
    policy = next(a["content"] for t, a in shown.tags if a.get("http-equiv"))
    assert policy == POLICY == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_headings_are_in_order_and_tables_have_captions_and_scopes(shown: Page) -> None:
    levels = [int(tag[1]) for tag, _ in shown.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    tags = [tag for tag, _ in shown.tags]
    assert tags.count("caption") == tags.count("table") == len(shown.tables)
    assert all(attributes.get("scope") for tag, attributes in shown.tags if tag == "th")
    charts = [a for tag, a in shown.tags if tag == "svg" and a.get("role") == "img"]
    assert len(charts) == 3
    assert tags.count("desc") == 3
    names = [a["id"] for _, a in shown.tags if a.get("id")]
    assert len(names) == len(set(names))
    assert shown.tags[0] == ("html", {"lang": "en"})


def test_texts_from_outside_stay_texts_in_every_output() -> None:
    whole = facts(
        usage(
            [
                share(HOSTILE, HOSTILE, quiet=0.5, account=HOSTILE),
                share("=2+3", "@SUM(A1)", 2, quiet=0.5, account="b"),
            ],
            cluster="al<b>pha",
        ),
        incidents=[
            incident(title=HOSTILE, label=HOSTILE, acknowledged_by=HOSTILE),
            idle(gpu(2), user=HOSTILE, holder=HOSTILE, label=HOSTILE),
        ],
    )
    report = build(whole)
    shown = page(html([report]))
    tags = {tag for tag, _ in shown.tags}
    assert not tags & {"script", "img", "b", "a"}
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    assert any("<script>alert(1)</script>" in text for text in shown.words)
    marked = markdown([report])
    assert not re.search(r"(?<!\\)[<|`]\s*script", marked)
    assert "<script" not in marked.replace("\\<", "")
    assert "://" not in marked
    assert "@all" not in marked
    for heading, rows in sections(marked).items():
        assert len({(row.count("") and len(row)) or len(row) for row in rows}) <= 1, heading
    cells = [cell for row in csv.reader(io.StringIO(csv_text([report]))) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "\t"))]
    assert "'=2+3" in cells


@pytest.mark.slow
def test_a_week_of_a_thousand_holders_is_under_300_kilobytes() -> None:
    shares = [
        share(f"job {n} with a longer name", f"user {n}", 1, seconds=900) for n in range(1000)
    ]
    week = facts(usage(shares, gpus=1024), incidents=eventful().incidents)
    report = build(week)
    assert len(html([report]).encode()) < 300_000


@pytest.mark.parametrize("days", [0.01042, 0.05, 0.3, 1, 2, 7, 30, 120, 400])
def test_the_chart_of_any_span_is_drawn_with_times_along_it(days: float) -> None:
    start = floor(END - timedelta(days=days))
    buckets = [bucket(start, [share()]), bucket(floor(START + WEEK / 2), [share()])]
    found = Usage(cluster="alpha", start=start, end=END, buckets=tuple(buckets[: 1 + (days > 4)]))
    said = page(html([build(facts(found))])).words
    axis = [
        text for text in said if re.fullmatch(r"[A-Z][a-z]{2} (\d\d:\d\d|\d+ [A-Z][a-z]{2})", text)
    ]
    assert 1 <= len(axis) <= 12
    assert "no data" in said or days < 0.02


def test_the_summary_for_a_chat_has_eight_lines_at_most(report: Report) -> None:
    lines = summary(report)
    assert len(lines) <= 8
    assert all("\n" not in line for line in lines)
    assert markdown([report]).startswith("\n".join(lines))
    assert "Coverage" in lines[-1]


def outputs(reports: Sequence[Report]) -> dict[str, str]:
    document = html(reports)
    return {
        "html": document,
        "json": json_text(reports),
        "csv": csv_text(reports),
        "md": markdown(reports),
    }


@pytest.mark.server  # drawing a PDF takes seconds
def test_a_simulated_cluster_is_marked_in_every_output() -> None:
    report = build(facts(usage([share()], cluster=SIMULATED_CLUSTER)))
    document = html([report])
    for one in pages(pdf(document)):
        assert "SIMULATED" in one
    for name, text in outputs([report]).items():
        assert "SIMULATED" in text, name
    shown = page(document)
    assert shown.words[0].startswith("SIMULATED: ")
    rows = list(csv.DictReader(io.StringIO(csv_text([report]))))
    assert {row["simulated"] for row in rows} == {"SIMULATED"}
    assert json.loads(json_text([report]))["reports"][0]["simulated"] is True


def test_a_real_cluster_is_not(report: Report, document: str) -> None:
    texts = (document, markdown([report]), csv_text([report]), json_text([report]))
    assert not any("SIMULATED" in text for text in texts)
    assert '"simulated": false' in texts[-1]


def test_clusters_follow_each_other_and_are_never_summed() -> None:
    two = [
        build(facts(usage([share(gpus=4, quiet=0.5)], cluster="alpha"))),
        build(facts(usage([share(gpus=2, quiet=0.5)], cluster="beta"))),
    ]
    shown = page(html(two))
    assert [tag for tag, _ in shown.tags].count("article") == 2
    names = [a["id"] for _, a in shown.tags if a.get("id")]
    assert len(names) == len(set(names))
    rows = list(csv.DictReader(io.StringIO(csv_text(two))))
    hours = {
        r["cluster"]: r["value"]
        for r in rows
        if r["section"] == "jobs" and r["name"] == "gpu_hours"
    }
    assert hours == {"alpha": "672", "beta": "336"}
    assert [one["cluster"] for one in json.loads(json_text(two))["reports"]] == ["alpha", "beta"]


def test_lost_hours_and_those_in_service_add_up_to_the_owned_ones(report: Report) -> None:
    found = report.capacity
    assert [one.lost_to for one in found.losses] == [
        "fault",
        "repair",
        "maintenance",
        "unknown",
    ]
    assert found.in_service_gpu_hours is not None
    together = sum(one.gpu_hours for one in found.losses) + found.in_service_gpu_hours
    assert round(together, report.digits) == found.owned_gpu_hours == report.installed_gpu_hours
    assert found.in_service_percent == 95.0  # 1.6 of 32 GPUs were lost
    for name, text in outputs([report]).items():
        said = {"json": '"in_service_percent": 95.0', "csv": ",in_service_percent,95,percent"}
        assert said.get(name, "95.0") in text, name


def test_what_was_lost_to_repair_and_maintenance_is_no_fault() -> None:
    away = {"fault": 0.2, "repair": 0.5, "maintenance": 1.0, "unknown": 0.3}
    report = build(facts(usage([share(gpus=6)], unavailable=2.0, lost=away)))
    assert "33.6 GPU-hours were lost to faults" in " ".join(
        one.text for one in report.verdict
    )  # 0.2 GPUs, a week


def test_where_nobody_could_say_what_was_out_of_service_no_output_has_a_number_of_it() -> None:
    report = build(facts(usage([share()], unavailable=1.0)))
    assert report.capacity.in_service_percent is None
    assert report.capacity.losses == ()
    assert report.capacity.unjudged_gpu_hours == report.installed_gpu_hours
    for name, text in outputs([report]).items():
        assert name in {"json", "csv"} or "not known what was out of service" in text, name


@pytest.mark.parametrize("cluster", ["", "alpha"])
def test_a_span_of_which_nothing_is_known_is_said_and_not_shown_as_zero(cluster: str) -> None:
    report = build(facts(nothing(cluster)))
    for name, text in outputs([report]).items():
        said = "No GPU is known" if not cluster else "Nothing was counted"
        assert said in text, name
    assert all(one.value is None for one in report.figures if one.key != "hardware_incidents")
    assert report.method.coverage_percent is None
    assert report.points == ()


def test_what_was_not_measured_is_not_zero() -> None:
    shares = [share()]
    counted = usage(shares)
    dark = [
        type(one)(
            **{
                **{name: getattr(one, name) for name in one.__slots__},
                "seconds": type(one.seconds)(
                    installed=7200, active=0, free=3600, allocated=3600, idle=3600
                ),
                "shares": (),
            }
        )
        for one in counted.buckets
    ]
    report = build(
        facts(type(counted)(cluster="alpha", start=START, end=START + WEEK, buckets=tuple(dark)))
    )
    assert report.figure("used_of_allocated_percent").value is None
    assert report.figure("energy_kwh").value is None
    assert {point.used_percent for point in report.points} == {None}
    assert "how much of that was used was not measured" in report.verdict[0].text
    html([report])
