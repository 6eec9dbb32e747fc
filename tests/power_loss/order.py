"""What has to be on the disk before what: the rules that the store's and the spool's safety rests on."""

from collections.abc import Callable, Iterable

from .disk_image import DiskImage
from .recording import Call

Rule = Callable[[DiskImage, Call], str]  # what is wrong right before a call; empty for nothing

_MARK = "telemetry.sealed/.adopting"
_SEALED = (".lines.parquet", ".rolled.parquet")


def broken(image: DiskImage, calls: Iterable[Call], rules: Iterable[Rule]) -> list[str]:
    """Each time that a rule is broken, in words."""
    found = []
    rules = list(rules)
    for number, call in enumerate(calls):
        told = [words for rule in rules if (words := rule(image, call))]
        found += [f"before call {number} ({call.what}): {words}" for words in told]
        image.follow(call)
    return found


def acknowledged_is_synced(image: DiskImage, call: Call) -> str:
    """Nothing is acknowledged before all that the program has made is on the disk."""
    if call.what != "A":
        return ""
    changed, _ = image.unsynced()
    return f"acknowledged, and not on the disk: {sorted(changed)}" if changed else ""


def sealed_before_it_is_named(image: DiskImage, call: Call) -> str:
    """Sealed files are on the disk, with their names, before the tables name them."""
    if call.what != "W" or image.path_of(call) != "telemetry.duckdb.wal":
        return ""
    changed, _ = image.unsynced()
    folders = {it for it in changed if "." not in it.rpartition("/")[2]}
    early = {it for it in changed if it.endswith(_SEALED)} | folders
    return f"a commit, and not on the disk: {sorted(early)}" if early else ""


def marked_before_the_tables_change(image: DiskImage, call: Call) -> str:
    """That sealed files are to be adopted, or are, is on the disk before the tables change again."""
    path = image.path_of(call) if call.what in "WT" else call.first.decode()
    if call.what not in "WTCR" or "telemetry.duckdb" not in path:
        return ""
    changed, gone = image.unsynced()
    return "the mark is not on the disk" if _MARK in changed | gone else ""


STORE = (acknowledged_is_synced, sealed_before_it_is_named, marked_before_the_tables_change)
