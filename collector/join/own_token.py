"""Exchanges a join token for the node's own; a second try takes no second use."""

from collections.abc import Callable
from pathlib import Path

from gpuvigil.errors import GpuvigilError, HubRefused
from gpuvigil.hub_client import joining
from gpuvigil.model import Subject

from . import node_files
from .node_files import PENDING, TOKEN
from .trusted_hub import Asked, accepts, exchange

Say = Callable[[str], None]


def own_token(asked: Asked, node: Subject, directory: Path, say: Say) -> str:
    """Return the token with which the node reports from now on; GpuvigilError if it gets none.

    A token that the node has and the hub accepts is kept. A new one is saved in the folder before
    it is sent to the hub.
    """
    found = {name: node_files.kept(directory, name) for name in (TOKEN, PENDING)}
    own = {name: token for name, token in found.items() if _is_own(token)}
    for token in own.values():
        if accepts(Asked(url=asked.url, token=token, authority=asked.authority), node):
            say(f"{'kept':<10} this node's token {joining.id_of(token)}, no use is taken")
            return token
    # A request without an answer is repeated with its token: with another, the node would have two.
    token = own.get(PENDING) or joining.made()
    node_files.keep_pending(token, directory)
    try:
        exchange(asked, node, token)
    except HubRefused as error:
        node_files.forget_pending(directory)
        raise GpuvigilError(f"the hub gives this node no token: {error}") from None
    say(f"{'exchanged':<10} the join token, for this node's own token {joining.id_of(token)}")
    return token


def _is_own(token: str) -> bool:
    """Return whether the token was issued to a node; a hub's configured tokens are for any node."""
    try:
        return not joining.is_join_token(token) and bool(joining.id_of(token))
    except ValueError:
        return False
