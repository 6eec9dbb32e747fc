"""A self-contained HTML file: no script, and its style inside."""

from functools import cache
from importlib.resources import files

from gpuvigil.config.reporting import PAPERS
from gpuvigil.web.markup import Html, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, *body: str, paper: str = PAPERS[0]) -> str:
    """Return the whole file with this body, to be printed on that paper."""
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="referrer" content="no-referrer">'),
        tag("title", title),
        tag("style", _style(paper)),
    )
    main = tag("main", *body)
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', main), lang='en')}\n"


@cache
def _style(paper: str) -> Html:
    style = (files("report.formats") / "report.css").read_text(encoding="utf-8")
    return Html(style.replace("size: A4", f"size: {paper}"))
