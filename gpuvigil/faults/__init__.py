"""The fault table, a row per fault with every policy about it, and the Xid table."""

from .model import (
    About,
    Blame,
    Confidence,
    Described,
    EndsBy,
    EndsJob,
    Fault,
    Link,
    NodeCheckSign,
    Proof,
    Shows,
    Stops,
    with_release,
)
from .relations import Explains, Halts, Mended, Reach, Shared, Sign
from .table import FAULTS, XID_FAULTS, found_by, where
from .xids import NOUVEAU_ACTION, Scope, Xid, xid, xids

__all__ = [
    "FAULTS",
    "NOUVEAU_ACTION",
    "XID_FAULTS",
    "About",
    "Blame",
    "Confidence",
    "Described",
    "EndsBy",
    "EndsJob",
    "Explains",
    "Fault",
    "Halts",
    "Link",
    "Mended",
    "NodeCheckSign",
    "Proof",
    "Reach",
    "Scope",
    "Shared",
    "Shows",
    "Sign",
    "Stops",
    "Xid",
    "found_by",
    "where",
    "with_release",
    "xid",
    "xids",
]
