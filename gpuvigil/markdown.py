"""Escapes untrusted text for Markdown. Pure functions."""

import re

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
# Plain text that chats make active: a mention of somebody, a link.
_LIVELY = (("@", "@\u200b"), ("://", ":\u200b//"), ("www.", "www\u200b."))


def text(value: str) -> str:
    """Escape untrusted text so that it shows literally: no markup, no line breaks, no links, no mentions."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(value.split()))
    for lively, still in _LIVELY:
        plain = plain.replace(lively, still)
    return plain
