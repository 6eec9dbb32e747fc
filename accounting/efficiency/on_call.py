"""Holders that keep a GPU ready for requests: services, and people in front of a session.

Low utilisation of such a GPU is no fault of its holder. A server that is neither scraped nor declared is
recognised by its name only: the lists are short, and servers they miss have to be declared
(docs/inference.md).
"""

import re
from enum import Enum

from gpuvigil.model import Allocation

# Job names of interactive sessions: shells, `salloc`, Open OnDemand, notebooks.
_INTERACTIVE = frozenset({"bash", "sh", "zsh", "tcsh", "interactive", "salloc", "vscode"})
_INTERACTIVE_BEGIN = ("sys/dashboard/", "jupyter", "ood-")
# What Kubernetes keeps running, by the kind in the job's name: `Deployment/team/chat`.
_KEPT_SERVING = (
    *("Deployment/", "StatefulSet/", "DaemonSet/", "LeaderWorkerSet/"),
    *("InferenceService/", "RayService/"),
)
_KEPT_RUNNING = (*_KEPT_SERVING, "RayCluster/", "Notebook/")
# Servers by words in their command; `observe` or `conserve` do not match.
_SERVER = re.compile(
    r"(?<![a-z])(?:v?llm[-_. ]?serve|vllm|sglang|tritonserver|triton-server|text-generation|tgi"
    r"|ollama|llama-server|lmdeploy|torchserve|trtllm-serve|api[-_]server|launch[-_]server|serve"
    r"|server|serving|inference|endpoint)(?![a-z])"
)
# Programs behind notebooks, and web pages for people.
_FOR_A_PERSON = re.compile(r"(?<![a-z])(?:streamlit|gradio|ipykernel(?:_launcher)?)(?![a-z])")


class Serves(str, Enum):
    """Why a holder is taken for an inference server."""

    COMMAND = "command"
    KUBERNETES = "kept running by Kubernetes"


def is_interactive(command: str | None) -> bool:
    """Return whether a person may sit in front of it, by the names of shells and notebooks."""
    name = (command or "").lower()
    return name in _INTERACTIVE or name.startswith(_INTERACTIVE_BEGIN)


def is_on_call(held: Allocation) -> bool:
    """Return whether the holder waits for requests or for a person, as far as names say so."""
    return (
        is_interactive(held.command)
        or held.holder.name.startswith(_KEPT_RUNNING)
        or _named(_SERVER, held)
        or _named(_FOR_A_PERSON, held)
    )


def serves(held: Allocation) -> Serves | None:
    """Return why the holder seems to serve requests, as far as names say so; None for others and sessions."""
    if is_interactive(held.command) or _named(_FOR_A_PERSON, held):
        return None
    if _named(_SERVER, held):
        return Serves.COMMAND
    return Serves.KUBERNETES if held.holder.name.startswith(_KEPT_SERVING) else None


def _named(words: re.Pattern[str], held: Allocation) -> bool:
    texts = (held.command, held.pod, held.holder.name)
    return any(words.search(text.lower()) for text in texts if text)
