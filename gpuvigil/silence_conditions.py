"""Conditions of a node that stopped reporting, with a heading and an action for each."""

from collections.abc import Mapping
from enum import Enum


class NodeSilence(str, Enum):
    """A kind of node silence; its value is the condition of the finding and the incident."""

    # While the silence lasts.
    DEAD = "dead"
    COLLECTOR = "collector"
    UNHEARD = "unheard"
    SCALED_DOWN = "scaled_down"
    AWAY = "away"
    STAYS_AWAY = "stays_away"
    RACK_POWER = "rack_power"
    RACK_NETWORK = "rack_network"
    RACK_EITHER = "rack_either"
    NOT_RECEIVED = "not_received"  # much of a cluster at once
    # Deliberate, according to the node's own last message or its scheduler.
    STOPPED = "stopped"
    SHUT_DOWN = "shut_down"
    NOT_BACK = "not_back"
    TAKEN_AWAY = "taken_away"
    # Once the nodes report again.
    WAS_DOWN = "was_down"
    WAS_REBOOTED = "was_rebooted"
    DID_NOT_REPORT = "did_not_report"
    CUT_OFF = "cut_off"
    RACK_WAS_DOWN = "rack_was_down"
    RACK_DID_NOT_REPORT = "rack_did_not_report"
    RACK_CUT_OFF = "rack_cut_off"

    @property
    def heading(self) -> str:
        """The heading of an incident; empty where the fault's own title says it."""
        return _WORDS[self][0]

    @property
    def action(self) -> str:
        return _WORDS[self][1]


# Conditions that say no more than the fault's own title.
PLAIN: frozenset[str] = frozenset({"", NodeSilence.TAKEN_AWAY})
# Afterwards these nodes are known to have been up: nobody's work stood still.
WAS_UP: frozenset[str] = frozenset({NodeSilence.DID_NOT_REPORT, NodeSilence.RACK_DID_NOT_REPORT})
WERE_DOWN: frozenset[str] = frozenset(
    {NodeSilence.WAS_DOWN, NodeSilence.WAS_REBOOTED, NodeSilence.RACK_WAS_DOWN}
)
# In these conditions no job computes there for certain; in the others only the silence is known.
KNOWN_DOWN: frozenset[str] = WERE_DOWN | {
    NodeSilence.DEAD,
    NodeSilence.RACK_POWER,
    NodeSilence.SHUT_DOWN,
    NodeSilence.NOT_BACK,
    NodeSilence.TAKEN_AWAY,
}
IN_ORDER: frozenset[str] = frozenset(
    {
        NodeSilence.STOPPED,
        NodeSilence.SHUT_DOWN,
        NodeSilence.NOT_BACK,
        NodeSilence.TAKEN_AWAY,
    }
)
# Conditions told while a silence lasts, which may still turn out to be something else.
UNSETTLED: frozenset[str] = frozenset(
    {
        "",
        NodeSilence.DEAD,
        NodeSilence.COLLECTOR,
        NodeSilence.UNHEARD,
        NodeSilence.SCALED_DOWN,
        NodeSilence.AWAY,
        NodeSilence.STAYS_AWAY,
        NodeSilence.RACK_POWER,
        NodeSilence.RACK_NETWORK,
        NodeSilence.RACK_EITHER,
    }
)

# Silences that may be an unintended death of the node, including those of which nothing is known yet.
MAY_BE_DEATH: frozenset[str] = frozenset(
    {
        "",
        NodeSilence.DEAD,
        NodeSilence.UNHEARD,
        NodeSilence.STAYS_AWAY,
        NodeSilence.RACK_POWER,
        NodeSilence.RACK_EITHER,
        NodeSilence.NOT_BACK,
        NodeSilence.WAS_DOWN,
        NodeSilence.RACK_WAS_DOWN,
    }
)

_NOTHING = "Nothing, if somebody wanted it."

_WORDS: Mapping[NodeSilence, tuple[str, str]] = {
    NodeSilence.DEAD: (
        "Node is dead: its jobs end with it",
        "Look at the node's console; power-cycle it when nothing answers.",
    ),
    NodeSilence.COLLECTOR: (
        "Collector does not report: the node's jobs go on",
        "Look at the collector's log and start it; check the node's way to the hub.",
    ),
    NodeSilence.UNHEARD: (
        "Node is dead or cut off: its scheduler does not hear it either",
        "Look at the node's console and its network; power-cycle it when nothing answers.",
    ),
    NodeSilence.SCALED_DOWN: (
        "Idle nodes left one by one: scaled down?",
        "Nothing, if somebody or an autoscaler took them; else look at the node's console.",
    ),
    NodeSilence.AWAY: (
        "Node is away, as at this hour on other days",
        "Nothing, if somebody switches it off at this hour; else look at the node's console.",
    ),
    NodeSilence.STAYS_AWAY: (
        "Node stays away longer than on other days",
        "Ask its owner whether it is to be off; else look at the node's console.",
    ),
    NodeSilence.RACK_POWER: (
        "Rack's nodes are dead: power, or what stopped them all",
        "Check power at the rack: feeds, PDUs, breakers; then the console of one of its nodes.",
    ),
    NodeSilence.RACK_NETWORK: (
        "Rack's nodes cannot reach the hub: their jobs go on",
        "Check the rack's management switch and its way to the hub; the nodes work on.",
    ),
    NodeSilence.RACK_EITHER: (
        "Rack stopped reporting: power or network",
        "Check the rack's power feeds and its management switch before any of its nodes.",
    ),
    NodeSilence.NOT_RECEIVED: (
        "gpuvigil receives no data from much of the cluster",
        "Check the hub, its store and the network between nodes and hub first; then what the nodes"
        " share: power, cooling, a rollout.",
    ),
    NodeSilence.STOPPED: (
        "Collector was stopped: nobody watches this node",
        "Start the collector when the work on the node is done.",
    ),
    NodeSilence.SHUT_DOWN: ("Node was shut down in order", _NOTHING),
    NodeSilence.NOT_BACK: ("Node was to reboot, and is not back", "Look at the node's console."),
    NodeSilence.TAKEN_AWAY: ("", "Nothing, while its scheduler wants it like this."),
    NodeSilence.WAS_DOWN: (
        "Node was down: it has booted since",
        "Read the node's kernel log from before it booted: why did it go down?",
    ),
    NodeSilence.WAS_REBOOTED: ("Node was rebooted while nobody held it", _NOTHING),
    NodeSilence.DID_NOT_REPORT: (
        "Collector did not report: its node was up",
        "Read the collector's log: why did it not run, or not reach the hub?",
    ),
    NodeSilence.CUT_OFF: (
        "Node could not reach the hub: its numbers came later",
        "Check the node's way to the hub.",
    ),
    NodeSilence.RACK_WAS_DOWN: (
        "Rack's nodes were down: they have booted since",
        "Check the rack's power: feeds, PDUs, breakers.",
    ),
    NodeSilence.RACK_DID_NOT_REPORT: (
        "Rack's nodes did not report: they were up",
        "Check the rack's management switch, and why its collectors did not run.",
    ),
    NodeSilence.RACK_CUT_OFF: (
        "Rack's nodes could not reach the hub: their numbers came later",
        "Check the rack's management switch and its way to the hub.",
    ),
}
