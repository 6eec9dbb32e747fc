"""What a node and a hub say to each other when a join token is exchanged for the node's own.

The node makes its token itself and sends no more than its id and its SHA-256: the same request again, after an
answer that was lost, is the same exchange and takes no second use.
"""

import hashlib
import secrets

PATH = "/api/v1/join"
"""Where a join token is exchanged."""

PREFIX = "join-"
"""With this the id of a join token begins, by which a node knows one."""


def is_join_token(token: str) -> bool:
    """Whether it is to be exchanged, and no token for a collector."""
    return token.startswith(f"gpuvigil_{PREFIX}")


def made(id_: str = "") -> str:
    """A new token, with its id in it."""
    return f"gpuvigil_{id_ or secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def id_of(token: str) -> str:
    """The id in a token; ValueError when it is none of these."""
    parts = token.split("_", 2)
    if len(parts) != 3 or parts[0] != "gpuvigil" or not parts[1] or not parts[2]:
        raise ValueError("not a token of gpuvigil's")
    return parts[1]


def sha256_of(token: str) -> str:
    """What a hub keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
