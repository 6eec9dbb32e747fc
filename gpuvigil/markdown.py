"""Escapes text from outside within Markdown: pure."""

import re

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
# What chats make of a plain text: a call for somebody, a link.
_LIVELY = (("@", "@\u200b"), ("://", ":\u200b//"), ("www.", "www\u200b."))


def text(value: str) -> str:
    """Text from outside as itself: no markup, no line of its own, no link, and nobody is called."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(value.split()))
    for lively, still in _LIVELY:
        plain = plain.replace(lively, still)
    return plain
