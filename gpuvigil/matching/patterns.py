"""Regular expressions that people type, matched in time linear in the text.

They are RE2's, as in Alertmanager: without back-references and look-around, for which `re` may need a
time that doubles with every letter while the rest of the process stands still. Matching needs
`google-re2`; a node's collector also reads the settings of routes, but matches nothing.
"""

from functools import lru_cache

import re2

# Memory limit of each pattern, for its program and its cache while matching; RE2 refuses larger ones.
_MOST_BYTES = 1 << 20


def check(text: str) -> None:
    """Raise ValueError that says why the text is no valid pattern."""
    _compiled(text)


def fits(text: str, value: str) -> bool:
    """Return whether the pattern matches the whole value; raise ValueError for an invalid pattern."""
    # A lone surrogate, which JSON may hold, is matched as a replacement character.
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
