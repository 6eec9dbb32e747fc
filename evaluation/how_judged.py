"""How the judge thinks, in short, as the page says it."""

from collections.abc import Iterator


def reading() -> Iterator[str]:
    """How the judge thinks, in short."""
    yield "## How it is judged"
    yield ""
    yield "- A fault is *found* when an incident on its machine, of any cause but more than a note (info) unless it names it, begins after its first sign and before its end (one that names it also between its start and that sign, which is an estimate: it took 0 s then); what begins within half an hour after it is its echo, neither found nor false."
    yield "- The *cause* is right when the incident names the fault itself (`evaluation/judge/fault_names.py`): that a node is silent is true of a dead node and of a dead collector, and names neither. It is read from the incident's last words, the action from its first; *in its first words* is whether whoever was told at once was told the cause, and *median s to the cause* is of when it was named for good."
    yield "- The *action* is right when its first step is the right one, and the node is drained exactly where it should be."
    yield "- Idle GPUs and programs' own errors (Xid 13, 31, 43, 45) are no claims about faults and are not judged here, whoever speaks of them."
    yield "- Peers' rules run in the analyzer's own passes and its life of an incident; each has its source in `evaluation/baselines/rules.py`. What they give as advice is not in their rules, so their action is never right."
    yield "- The library's detectors have the limits that were best on the tuning fleets (`python -m evaluation.tune`): more than ours were given. They look every five minutes at a quarter of an hour, and name no cause and no action. Those limits are low: many of their claims stand before a fault begins, which F1 counts as right on a fleet full of faults, and *found* does not."
    yield "- Faults are held short (two hours) so that every kind fits into one fleet: what grows for days has little time to show here."
