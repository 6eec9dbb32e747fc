"""Who has a GPU in order to be there when it is asked for: services, and people who sit in front of it.

That such a GPU is used for little of the time says nothing against its holder. Names are all there is
where nobody scrapes the server or has declared it: the lists are short, and what they miss is declared
(docs/inference.md).
"""

import re

from gpuvigil.model import Allocation

# Job names under which people sit in front of a job: shells, `salloc`, Open OnDemand, notebooks.
_INTERACTIVE = frozenset({"bash", "sh", "zsh", "tcsh", "interactive", "salloc", "vscode"})
_INTERACTIVE_BEGIN = ("sys/dashboard/", "jupyter", "ood-")
# What Kubernetes keeps running, by the kind that its jobs are named with: `Deployment/team/chat`.
_KEPT_RUNNING = (
    *("Deployment/", "StatefulSet/", "DaemonSet/", "LeaderWorkerSet/"),
    *("InferenceService/", "RayService/", "RayCluster/", "Notebook/"),
)
# Servers by the words of their command, and programs behind notebooks; of `observe` or `conserve` nothing fits.
_SERVER = re.compile(
    r"(?<![a-z])(?:v?llm[-_. ]?serve|vllm|sglang|tritonserver|triton-server|text-generation|tgi"
    r"|ollama|llama-server|lmdeploy|torchserve|trtllm-serve|api[-_]server|launch[-_]server|serve"
    r"|server|serving|inference|endpoint|streamlit|gradio|ipykernel(?:_launcher)?)(?![a-z])"
)


def is_interactive(command: str | None) -> bool:
    """Whether somebody may sit in front of it: what a shell or a notebook is called."""
    name = (command or "").lower()
    return name in _INTERACTIVE or name.startswith(_INTERACTIVE_BEGIN)


def is_on_call(held: Allocation) -> bool:
    """Whether its holder waits for requests or for a person, as far as names say so."""
    words = (held.command, held.pod, held.holder.name)
    return (
        is_interactive(held.command)
        or held.holder.name.startswith(_KEPT_RUNNING)
        or any(_SERVER.search(text.lower()) for text in words if text)
    )
