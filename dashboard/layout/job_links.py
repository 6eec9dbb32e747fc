"""Sentences in which the jobs' names lead to their pages: pure."""

import re
from collections.abc import Iterable, Iterator

from gpuvigil.model import Holder
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from .tree import Node, el

# More names in one sentence nobody follows.
_MOST = 20
Part = tuple[str, str]  # a text, and the page that it leads to; empty: none


def parts(text: str, cluster: str, holders: Iterable[str]) -> list[Part]:
    """The sentence in pieces, each job or pod of `holders` that it names with its page."""
    pages = {
        name: href
        for name in list(holders)[:_MOST]
        if name and (href := page_links.job_page(cluster, Holder.parse(name)))
    }
    if not pages:
        return [(text, "")] if text else []
    names = "|".join(re.escape(name) for name in sorted(pages, key=len, reverse=True))
    return list(_pieces(re.split(rf"(?<!\w)({names})(?!\w)", text), pages))


def _pieces(pieces: list[str], pages: dict[str, str]) -> Iterator[Part]:
    """Every second piece is a name."""
    for place, piece in enumerate(pieces):
        if piece:
            yield piece, pages[piece] if place % 2 else ""


def nodes(text: str, cluster: str, holders: Iterable[str]) -> list[Node]:
    """The same for a tree."""
    found = parts(text, cluster, holders)
    return [el("a", piece, href=href) if href else piece for piece, href in found]


def html(text: str, cluster: str, holders: Iterable[str]) -> Html:
    """The same as HTML."""
    found = parts(text, cluster, holders)
    return joined(*(tag("a", piece, href=href) if href else piece for piece, href in found))
