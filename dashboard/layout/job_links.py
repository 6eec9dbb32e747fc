"""Sentences in which the names of jobs and users are links to their pages; pure."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gpuvigil.model import Holder
from gpuvigil.web import page_links
from gpuvigil.web.markup import Html, joined, tag

from .tree import Node, el

# The most names of a kind that are linked in a sentence.
_MOST = 20
Part = tuple[str, str]  # a text, and the page that it links to; empty for none


def parts(text: str, cluster: str, holders: Iterable[str], users: Iterable[str] = ()) -> list[Part]:
    """Split the sentence into pieces; each job, pod or user in it has its page.

    A user's name may be an ordinary word, so it only counts after "of" or a bracket.
    """
    pages = {
        name: href
        for name in list(holders)[:_MOST]
        if name and (href := page_links.job_page(cluster, Holder.parse(name)))
    }
    people = {name: page_links.user_page(name) for name in list(users)[:_MOST] if name}
    either = [rf"(?<!\w){_any(pages)}(?!\w)"] if pages else []
    either += [rf"(?:(?<=\bof )|(?<=\()){_any(people)}(?!\w)"] if people else []
    if not either:
        return [(text, "")] if text else []
    return list(_pieces(re.split(f"({'|'.join(either)})", text), {**people, **pages}))


def linked(text: str, pages: Mapping[str, str]) -> Html:
    """Return the text with each of these names linked to its page."""
    pieces = re.split(rf"(?<![\w-])({_any(pages)})(?![\w-])", text) if pages else [text]
    return joined(
        *(tag("a", it, href=pages[it]) if place % 2 else it for place, it in enumerate(pieces))
    )


def _any(names: Iterable[str]) -> str:
    """Return a pattern for any of the names, the longest first."""
    return f"(?:{'|'.join(re.escape(name) for name in sorted(names, key=len, reverse=True))})"


def _pieces(pieces: list[str], pages: dict[str, str]) -> Iterator[Part]:
    """Yield the pieces, of which every second one is a name."""
    for place, piece in enumerate(pieces):
        if piece:
            yield piece, pages[piece] if place % 2 else ""


def nodes(text: str, cluster: str, holders: Iterable[str], users: Iterable[str] = ()) -> list[Node]:
    """Return `parts` as nodes of a tree."""
    found = parts(text, cluster, holders, users)
    return [el("a", piece, href=href) if href else piece for piece, href in found]


def html(text: str, cluster: str, holders: Iterable[str], users: Iterable[str] = ()) -> Html:
    """Return `parts` as HTML."""
    found = parts(text, cluster, holders, users)
    return joined(*(tag("a", piece, href=href) if href else piece for piece, href in found))


def of_cell(key: str, value: object, cluster: str | None) -> str:
    """Return the page of what a table's cell names, by its column's key; empty for none."""
    text = value if isinstance(value, str) else ""
    if not text:
        return ""
    if key in {"holder", "job"}:
        return page_links.job_page(cluster, Holder.parse(text))
    if key == "user":
        return page_links.user_page(text)
    if key == "account":
        return page_links.team_page(text)
    # A text with several nodes has no single page.
    whole = key in {"node", "nodes"} and cluster is not None and not re.search(r"[\s,\[]", text)
    return page_links.node_page(cluster or "", text) if whole else ""
