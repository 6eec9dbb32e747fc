"""The names of a check's evidence: a stable key for programs, words for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gpuvigil.model import Evidence


class Item(Enum):
    """A kind of evidence.

    The key is the name in lower case; the value is for people, and may be reworded.
    """

    # Of the driver, and of what it lists.
    UNTIL = "until"
    NVML = "NVML"
    GPUS_EXPECTED = "GPUs that should be here"
    HELD_BY = "the GPUs are held by"
    MAKER = "maker"
    DRIVER = "driver"
    PCI_ADDRESS = "PCI address"
    GPUS_LISTED = "the driver lists"
    MISSING_SINCE = "missing since"
    ON_PCI_BUS = "on the PCI bus"
    GPUS = "GPUs"
    NO_ANSWER_WITHIN = "no answer within"
    CALL_STUCK_FOR = "a call has not returned for"
    COLLECTOR_UNANSWERED_FOR = "the collector has had no answer for"
    # Of one GPU.
    DRIVER_ADVICE = "the driver advises"
    UNCORRECTABLE_ERRORS = "uncorrectable errors"
    SRAM_THRESHOLD = "threshold exceeded"
    SRAM_PARITY_ERRORS = "parity"
    SRAM_SECDED_ERRORS = "SEC-DED"
    ROWS_REMAPPED = "rows remapped for uncorrectable errors"
    REMAP_FAILURE = "remap failure"
    WAITS_FOR_RESET = "waits for a reset"
    PAGES_RETIRED = "pages retired"
    PAGES_RETIRED_BY_DOUBLE_BIT = "pages retired by double-bit errors"
    BANKS_WITHOUT_SPARE = "banks without a spare row"
    CLOCK_EVENT_REASONS = "clock event reasons"
    TEMPERATURE = "temperature"
    PCIE_LANES = "lanes"
    PCIE_GENERATION = "generation"
    UTILIZATION = "utilisation"
    FABRIC_REGISTRATION = "registration"
    FABRIC_REGISTRATION_ENDED = "registration ended with"
    FABRIC_HEALTH = "health"
    FABRIC_HEALTH_MASK = "mask"
    NVLINKS_UP = "links up"
    NVLINKS_OF_PEERS = "peers on this node"
    # Of ports, and of the kernel log.
    LINK = "link"
    ROLE = "role"
    DRIVER_WORDS = "the driver's words"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEvidence(Evidence):
    """Evidence of a check; `key` is what programs read, such as `pcie_lanes` or `xid_79`."""

    key: str


def shown(values: Mapping[Item, str]) -> tuple[CheckEvidence, ...]:
    """Return the evidence in the order of these values."""
    return tuple(
        CheckEvidence(key=item.name.lower(), name=item.value, value=value)
        for item, value in values.items()
    )
