"""What can be wrong, in plain words: a row per fault with every policy about it, and the Xid table."""

from .model import (
    About,
    Blame,
    Described,
    EndsBy,
    EndsJob,
    Fault,
    Link,
    Shows,
    Stops,
    Title,
    with_release,
)
from .table import FAULTS, XID_FAULTS, found_by, where
from .xids import NOUVEAU_ACTION, Scope, Xid, xid, xids

__all__ = [
    "FAULTS",
    "NOUVEAU_ACTION",
    "XID_FAULTS",
    "About",
    "Blame",
    "Described",
    "EndsBy",
    "EndsJob",
    "Fault",
    "Link",
    "Scope",
    "Shows",
    "Stops",
    "Title",
    "Xid",
    "found_by",
    "where",
    "with_release",
    "xid",
    "xids",
]
