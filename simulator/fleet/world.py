"""Settings of a realistic fleet: uneven nodes, ragged work, telemetry with holes, rare faults at any time.

Sources are beside the numbers; numbers without a source are chosen, and say so. AcmeTrace: Hu et al.,
"Characterization of Large Language Model Development in the Datacenter", NSDI 2024, CC-BY-4.0.
"""

from .model import FleetSettings, Shares, WorldSettings
from .site import FaultKind

# GPU utilisation of a shared cluster of many small jobs, percent below which a share of samples lies
# (Philly, as in AcmeTrace's data, CC-BY-4.0, thinned): a third at 0, a fifth from 5 to 60 %, a
# quarter above 90 %. The mix is compared with this.
UTILIZATION_OF_PHILLY = (
    (0.0, 0.33), (8.85, 0.359), (28.25, 0.419), (44.33, 0.479), (56.33, 0.54), (69.2, 0.6),
    (81.05, 0.66), (89.6, 0.72), (94.8, 0.78), (98.0, 0.84), (99.27, 0.9), (100.0, 1.0),
)  # fmt: skip
# GPU time by workload [chosen, so that utilisation is spread about as in Philly].
MIX: Shares = (
    ("data parallel", 0.13), ("tensor parallel", 0.13), ("pipeline parallel", 0.07),
    ("cpu offload", 0.03), ("fine-tuning", 0.08), ("steady inference", 0.06),
    ("bursty inference", 0.05), ("sweep", 0.05), ("notebook", 0.05), ("data starved", 0.06),
    ("ragged training", 0.09), ("phased scoring", 0.07), ("quiet inference", 0.07),
    ("autoscaled inference", 0.06),
)  # fmt: skip
# Frequency by kind. The kinds that stop work, most of which name themselves: interruptions of Llama
# 3's training (Meta, "The Llama 3 Herd of Models", 2024, table 5: 419 in 54 days of 2,048 nodes),
# split evenly over the kinds here that match one of its causes. The kinds that only slow work down, or
# show before they stop it, and have to be inferred: as many again in all [chosen: GREYHOUND, ATC 2025,
# saw slow work in 16 of 27 large jobs, of congestion more often than of GPUs].
_INTERRUPTIONS: dict[float, tuple[str, ...]] = {
    148.0: (
        "off the bus", "ECC uncontained", "NVLink down", "NVSwitch", "fabric manager", "driver hang",
        "missing since boot", "hung process",
    ),
    72.0: ("ECC contained", "remap pending", "remap failure", "SBE storm", "retired pages"),
    35.0: ("port down", "port flap", "bad cable", "leaf down"),
    32.0: ("dead node", "dead collector", "cut off"),
    19.0: ("SRAM threshold",),
    17.0: ("GSP hang",),
    7.0: ("zombie memory",),
    6.0: ("HW thermal", "heatsink"),
    4.0: ("disk full", "stale mount"),
    3.0: ("PSU", "power brake", "power feed"),
    2.0: ("DIMM errors", "fan"),
}  # fmt: skip
_SLOW: dict[str, float] = {
    "congestion": 60.0, "slow link": 15.0, "slow receiver": 15.0, "lossy path": 15.0,
    "slow node network": 15.0, "hot module": 10.0, "slow GPU": 40.0, "stuck clocks": 30.0, "lowered power limit": 30.0,
    "rack inlet": 20.0, "PCIe width": 20.0, "PCIe generation": 15.0, "PCIe replays": 25.0,
    "NVLink CRC": 25.0, "NVLink replay": 20.0, "SBE growth": 20.0, "ECC mode drift": 10.0,
    "MIG mode drift": 10.0, "VBIOS drift": 10.0, "driver drift": 10.0, "InfoROM": 10.0,
    "missing since installation": 2.0,
}  # fmt: skip
WEIGHTS: Shares = (
    *((kind, count / len(them)) for count, them in _INTERRUPTIONS.items() for kind in them),
    *_SLOW.items(),
)
# Added for faults between switches, where somebody reads those: these cables are half as many as
# those of hosts, and fail as often [chosen].
SWITCH_WEIGHTS: Shares = (
    ("bad uplink", 6.0), ("slow uplink", 6.0), ("uplink down", 6.0), ("spine lost", 1.0),
)  # fmt: skip
# Faults per 1,000 node-days of a cluster of A100s (Meta, "Revisiting Reliability", HPCA 2025).
NATURAL_RATE = 6.5


def world(  # noqa: PLR0913 - each is a key of a description
    seed: int,
    *,
    nodes: int,
    days: float,
    faults_per_1000_node_days: float = NATURAL_RATE,
    kinds: tuple[str, ...] | None = None,
    models: tuple[str, ...] = ("H100",),
    demand: float = 0.9,
    mix: Shares = MIX,
    weights: Shares | None = None,
    gpus_per_node: int = 8,
    nodes_per_rack: int = 4,
    more_kinds: tuple[FaultKind, ...] = (),
    switches: bool = False,
    settings: WorldSettings = WorldSettings(),  # noqa: B008 - frozen
) -> FleetSettings:
    """Return the settings of a realistic fleet; `simulator.fleet.build` says what makes no sense.

    `kinds` are those that happen, all of them by default, as often as `weights` says. With `switches`
    somebody reads the switches.
    """
    return FleetSettings(
        seed=seed,
        nodes=nodes,
        days=days,
        gpus_per_node=gpus_per_node,
        nodes_per_rack=nodes_per_rack,
        models=models,
        demand=demand,
        fault_rate=faults_per_1000_node_days,
        kinds=kinds,
        world=settings,
        mix=mix,
        fault_weights=weights_of(switches) if weights is None else weights,
        more_kinds=more_kinds,
        switches=switches,
    )


def weights_of(switches: bool) -> Shares:
    """Return the weights of all kinds that a fleet has."""
    return WEIGHTS + SWITCH_WEIGHTS if switches else WEIGHTS
