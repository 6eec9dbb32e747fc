"""Validation of annotations, with the same rules for the command and the page."""

import os
from collections.abc import Collection, Iterable
from datetime import timedelta

from ..errors import ConfigError
from ..model.annotation import LONGEST, Annotation


def new_id() -> str:
    """Return a new unique id for an annotation."""
    return f"n-{os.urandom(4).hex()}"


def checked(said: Annotation, known: Iterable[tuple[str, str]]) -> Annotation:
    """Return the annotation if it is valid; raise ConfigError that says what is wrong with it.

    `known` has the cluster and name of each node.
    """
    if not said.note:
        raise ConfigError("say what was done")
    if not said.by:
        raise ConfigError("an annotation needs somebody's name")
    if said.until is not None and not timedelta() < said.until - said.at <= LONGEST:
        raise ConfigError(f"it ends after it begins, and within {LONGEST.days} days")
    _of_known(said, frozenset(known))
    return said


def _of_known(said: Annotation, known: Collection[tuple[str, str]]) -> None:
    asked = {(said.cluster, node) for node in said.nodes}
    if unknown := sorted(node for _, node in asked.difference(known)):
        where = sorted(cluster for cluster, node in known if node == unknown[0])
        hint = f"; there is one in cluster {', '.join(where)}" if where else ""
        raise ConfigError(f"the hub knows no node {unknown[0]} in cluster {said.cluster}{hint}")
    if said.cluster not in {cluster for cluster, _ in known}:
        raise ConfigError(f"the hub knows no cluster {said.cluster}")
