"""HTML in which all text is escaped: names of jobs, users and nodes come from strangers."""

import re
from html import escape

# The browser's sanitiser drops an attribute whose value could end a comment or a raw text element:
# with a space inserted the value is kept, and means the same.
_ENDINGS = re.compile(
    r"(--!?|])(?=>)"
    r"|<(?=/(?:style|script|title|xmp|textarea|noscript|iframe|noembed|noframes))",
    re.IGNORECASE,
)


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | None) -> Html:
    """Return an element; children are escaped unless they are `Html`, attributes always.

    `class_` and `aria_label` stand for `class` and `aria-label`; an attribute of None is left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_ENDINGS.sub(_spaced, value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    """Return the children concatenated, escaped unless they are `Html`."""
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


def _spaced(found: re.Match[str]) -> str:
    return f"{found.group()} "
