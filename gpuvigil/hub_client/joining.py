"""The exchange of a join token for a node's own token, between a node and a hub.

The node makes its token itself and sends only its id and its SHA-256. Repeating the request after a lost
answer is thus the same exchange and does not use the join token a second time.
"""

import hashlib
import secrets

PATH = "/api/v1/join"
"""Where a join token is exchanged."""

PREFIX = "join-"
"""The prefix of a join token's id, by which a node recognises it."""


def is_join_token(token: str) -> bool:
    """Return whether a token is a join token to be exchanged, not a collector's token."""
    return token.startswith(f"gpuvigil_{PREFIX}")


def made(id_: str = "") -> str:
    """Return a new token that contains its id."""
    return f"gpuvigil_{id_ or secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def id_of(token: str) -> str:
    """Return the id in a token; raise ValueError for text that is no gpuvigil token."""
    parts = token.split("_", 2)
    if len(parts) != 3 or parts[0] != "gpuvigil" or not parts[1] or not parts[2]:
        raise ValueError("not a token of gpuvigil's")
    return parts[1]


def sha256_of(token: str) -> str:
    """Return the SHA-256 of a token, which is all that a hub keeps of it."""
    return hashlib.sha256(token.encode()).hexdigest()
