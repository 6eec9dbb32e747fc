"""Holders that keep a GPU ready for requests: services, and people in front of a session.

That such a GPU is used for little of the time says nothing against its holder. Names are all there is
where nobody scrapes the server or has declared it: the lists are short, and what they miss is declared
(docs/inference.md).
"""

import re
from enum import Enum

from gpuvigil.model import Allocation

# Job names under which people sit in front of a job: shells, `salloc`, Open OnDemand, notebooks.
_INTERACTIVE = frozenset({"bash", "sh", "zsh", "tcsh", "interactive", "salloc", "vscode"})
_INTERACTIVE_BEGIN = ("sys/dashboard/", "jupyter", "ood-")
# What Kubernetes keeps running, by the kind that its jobs are named with: `Deployment/team/chat`.
_KEPT_SERVING = (
    *("Deployment/", "StatefulSet/", "DaemonSet/", "LeaderWorkerSet/"),
    *("InferenceService/", "RayService/"),
)
_KEPT_RUNNING = (*_KEPT_SERVING, "RayCluster/", "Notebook/")
# Servers by the words of their command; of `observe` or `conserve` nothing fits.
_SERVER = re.compile(
    r"(?<![a-z])(?:v?llm[-_. ]?serve|vllm|sglang|tritonserver|triton-server|text-generation|tgi"
    r"|ollama|llama-server|lmdeploy|torchserve|trtllm-serve|api[-_]server|launch[-_]server|serve"
    r"|server|serving|inference|endpoint)(?![a-z])"
)
# Programs behind notebooks, and pages that people sit in front of.
_FOR_A_PERSON = re.compile(r"(?<![a-z])(?:streamlit|gradio|ipykernel(?:_launcher)?)(?![a-z])")


class Serves(str, Enum):
    """By what a holder is taken for a server of inference."""

    COMMAND = "command"
    KUBERNETES = "kept running by Kubernetes"


def is_interactive(command: str | None) -> bool:
    """Whether somebody may sit in front of it: what a shell or a notebook is called."""
    name = (command or "").lower()
    return name in _INTERACTIVE or name.startswith(_INTERACTIVE_BEGIN)


def is_on_call(held: Allocation) -> bool:
    """Whether its holder waits for requests or for a person, as far as names say so."""
    return (
        is_interactive(held.command)
        or held.holder.name.startswith(_KEPT_RUNNING)
        or _named(_SERVER, held)
        or _named(_FOR_A_PERSON, held)
    )


def serves(held: Allocation) -> Serves | None:
    """Whether its holder waits for requests, as far as names say so; who waits for a person does not."""
    if is_interactive(held.command) or _named(_FOR_A_PERSON, held):
        return None
    if _named(_SERVER, held):
        return Serves.COMMAND
    return Serves.KUBERNETES if held.holder.name.startswith(_KEPT_SERVING) else None


def _named(words: re.Pattern[str], held: Allocation) -> bool:
    texts = (held.command, held.pod, held.holder.name)
    return any(words.search(text.lower()) for text in texts if text)
