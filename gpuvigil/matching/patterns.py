"""Patterns that people type, matched in a time that grows with the text only, whatever they are.

RE2's, as Alertmanager's own: no references back and no looking around, of which `re` may need a time
that doubles with every letter while nothing else of the process runs. Who matches needs `google-re2`;
a node's collector, which reads the settings of routes too, does not.
"""

from functools import lru_cache

import re2

# Of each pattern, for its program and what it remembers while it matches; RE2 refuses larger ones.
_MOST_BYTES = 1 << 20


def check(text: str) -> None:
    """ValueError says why it is no pattern."""
    _compiled(text)


def fits(text: str, value: str) -> bool:
    """Whether the pattern fits the whole value; ValueError when it is none."""
    # A lone surrogate, which JSON may hold, fits what stands for any letter.
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return _compiled(text).fullmatch(clean) is not None


@lru_cache(maxsize=512)
def _compiled(text: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem = _MOST_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is no regular expression: it is no Unicode") from None
    except re2.error as error:
        (why,) = error.args
        said = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
        raise ValueError(f"{text!r} is no regular expression: {said}") from None
