"""The printed report: on the paper that was asked for, and without a half-empty page."""

from collections.abc import Iterator
from typing import Any

import pytest
from weasyprint import HTML

from gpuvigil.config import ReportSettings
from report.formats.html_format import html
from report.sections.build import build
from tests.report.weeks import eventful, facts

pytestmark = [pytest.mark.slow, pytest.mark.server]  # drawing a PDF takes seconds

# 210 by 297 mm and 8.5 by 11 inches, in pixels of 1/96 inch.
SIZES = {"a4": (794, 1123), "letter": (816, 1056)}
HALF = 0.5


def test_a4_is_what_is_printed_on_unless_told_otherwise() -> None:
    assert "size: A4" in html([build(facts())]) or "size: a4" in html([build(facts())])
    assert list(ReportSettings(paper="letter").wrong()) == []
    assert [key for key, _ in ReportSettings(paper="legal").wrong()] == ["paper"]


@pytest.mark.parametrize("paper", SIZES)
def test_pages_have_the_size_of_the_paper_and_none_but_the_last_is_half_empty(paper: str) -> None:
    document = html([build(eventful())], paper)
    pages = HTML(string=document).render().pages
    assert len(pages) >= 5
    assert {(round(one.width), round(one.height)) for one in pages} == {SIZES[paper]}
    filled = [_filled(one) for one in pages[:-1]]
    assert min(filled) >= HALF, filled


def _texts(page: Any) -> Iterator[Any]:
    """What lies within the margins."""
    html_box = page._page_box.children[0]
    return (one for one in html_box.descendants() if hasattr(one, "text") and one.text.strip())


def _filled(page: Any) -> float:
    """How far down the page anything is written."""
    return float(max(one.position_y + one.height for one in _texts(page)) / page.height)
