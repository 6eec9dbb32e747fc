"""What an HTML report says, for tests: its tables cell by cell, its figures, its tags."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_BLOCKS = {"td", "th", "p", "h1", "h2", "dt", "dd", "li", "caption", "div", "span", "title", "desc"}


@dataclass
class Page:
    """The words of a page in order, and its tables by caption."""

    words: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    listed: list[list[list[str]]] = field(default_factory=list)  # the same in their order
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._rows: list[list[str]] = []
        self._row: list[str] | None = None
        self._cell = self._caption = ""
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._row = []
        elif tag in {"td", "th"}:
            self._cell = ""
        if tag in {"meta", "rect", "path", "line", "circle"}:
            self._inside.pop()

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()
        if tag in {"td", "th"} and self._row is not None:
            self._row.append(_plain(self._cell))
        elif tag == "tr" and self._row is not None:
            self._rows.append(self._row)
        elif tag == "table":
            self.page.tables[self._caption] = self._rows
            self.page.listed.append(self._rows)

    def handle_data(self, data: str) -> None:
        if "style" in self._inside:
            return
        self._cell += data
        if "caption" in self._inside:
            self._caption += data
        if data.strip():
            self.page.words.append(_plain(data))


def page(html: str) -> Page:
    """What the document says."""
    reader = _Reader()
    reader.feed(html)
    return reader.page


def _plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").replace("\u2011", "-").split())
