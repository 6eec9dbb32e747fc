"""A port's counters in sysfs files: each driver's names, and how the counters behave when full.

Names and widths: Linux, drivers/infiniband, `core/sysfs.c` for the counters of InfiniBand's
performance management, and of the drivers `hw/mlx5/counters.c`, `hw/efa/efa_verbs.c`,
`hw/bnxt_re/hw_counters.c` and `hw/irdma/verbs.c`. `hw_counters/lifespan` is the age in milliseconds
at which the kernel reads them anew, and no counter.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from . import files

_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count words of four bytes
# The kernel's errors for a file that this port will never fill.
_REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A metric, and the files that it is the sum of, those that a driver has.

    Once full, it stays at `stays_at`, or goes on with 0 at `wraps_at`; both are None where it is
    never full.
    """

    metric: str
    files: tuple[str, ...]
    unit: int = 1
    stays_at: int | None = None
    wraps_at: int | None = None


def _managed(metric: str, file: str, bits: int) -> Counter:
    """Return a counter of InfiniBand's performance management, which saturates until cleared.

    InfiniBand Architecture Specification, volume 1, PortCounters.
    """
    return Counter(metric=metric, files=(file,), stays_at=2**bits - 1)


def _wrapping(metric: str, *names: str) -> Counter:
    return Counter(metric=metric, files=names, wraps_at=2**32)


def _endless(metric: str, *names: str) -> Counter:
    return Counter(metric=metric, files=names)


PORT_COUNTERS = (
    Counter(metric="receive_bytes", files=("port_rcv_data",), unit=_WORD_BYTES),
    Counter(metric="transmit_bytes", files=("port_xmit_data",), unit=_WORD_BYTES),
    _managed("receive_errors", "port_rcv_errors", 16),
    _managed("transmit_discards", "port_xmit_discards", 16),
    _managed("link_downed", "link_downed", 8),
    _managed("symbol_errors", "symbol_error", 16),
    _managed("link_recoveries", "link_error_recovery", 8),
    _managed("local_integrity_errors", "local_link_integrity_errors", 4),
    _managed("buffer_overruns", "excessive_buffer_overrun_errors", 4),
    _managed("receive_remote_errors", "port_rcv_remote_physical_errors", 16),
    _managed("transmit_wait_ticks", "port_xmit_wait", 32),
)
# Of several lines of one metric, the first for which the driver has a file counts.
HARDWARE_COUNTERS = (
    # mlx5. Its counters by queue have 32 bits, those of congestion 64.
    _wrapping("out_of_buffer", "out_of_buffer"),
    _wrapping("receiver_not_ready", "rnr_nak_retry_err"),
    _wrapping("out_of_sequence", "out_of_sequence"),
    _wrapping(
        "retransmits",
        "packet_seq_err",
        "local_ack_timeout_err",
        "implied_nak_seq_err",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
    ),
    _endless("ecn_marked_packets", "np_ecn_marked_roce_packets"),
    _endless("cnp_sent", "np_cnp_sent"),
    _endless("cnp_handled", "rp_cnp_handled"),
    _endless("cnp_ignored", "rp_cnp_ignored"),
    # EFA, which has no performance management.
    _endless("receive_bytes", "rx_bytes"),
    _endless("transmit_bytes", "tx_bytes"),
    _endless("receive_discards", "rx_drops"),
    _endless("retransmits", "retrans_pkts"),
    _endless(
        "path_timeouts",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
    ),
    # bnxt_re.
    _endless("receive_discards", "rx_roce_discards"),
    _endless("out_of_buffer", "rx_out_of_buffer"),
    _endless("receiver_not_ready", "rnr_naks_rcvd"),
    _endless("out_of_sequence", "oos_drop_count"),
    _endless("retransmits", "to_retransmits", "seq_err_naks_rcvd"),
    _endless("ecn_marked_packets", "rx_ecn_marked_pkts"),
    _endless("cnp_sent", "tx_cnp_pkts"),
    _endless("cnp_handled", "rx_cnp_pkts"),
    # irdma. It counts a message that found no buffer here by the answer that it sent.
    _endless("out_of_buffer", "RNR sent"),
    _endless("receiver_not_ready", "RNR received"),
    _wrapping("retransmits", "RetransSegs"),
    _wrapping("retransmits", "tcpRetransSegs"),
    _endless("ecn_marked_packets", "RxECNMrkd"),
    _wrapping("cnp_sent", "cnpSent"),
    _wrapping("cnp_handled", "cnpHandled"),
    _wrapping("cnp_ignored", "cnpIgnored"),
)
INTERFACE_COUNTERS = (
    _endless("receive_bytes", "statistics/rx_bytes"),
    _endless("transmit_bytes", "statistics/tx_bytes"),
    _endless("receive_errors", "statistics/rx_errors"),
    _endless("transmit_discards", "statistics/tx_dropped"),
    _endless("link_downed", "carrier_down_count"),
)


@dataclass(slots=True, kw_only=True)
class CounterFiles:
    """One counter of one port; a file that the kernel refuses is not read again."""

    counter: Counter
    paths: list[str] = field(default_factory=list)

    def read(self) -> int | None:
        """Return the sum; None where a file cannot be read: a sum without a part would be another."""
        total = 0
        for path in tuple(self.paths):
            try:
                text = files.attribute(path).strip()
            except OSError as error:
                if error.errno not in _REFUSALS:
                    return None
                self.paths.remove(path)
                continue
            if not (text.isascii() and text.isdigit()):
                self.paths.remove(path)  # `N/A (no PMA)`
                continue
            total += int(text)
        return total * self.counter.unit if self.paths else None


def rdma_counters(port: str, device: str) -> tuple[CounterFiles, ...]:
    """Return the counters that an RDMA port's driver has, each metric once.

    `port` and `device` are folders. mlx5 counts for the device instead of its ports where it is in
    switchdev mode.
    """
    hardware = f"{port}/hw_counters"
    there = files.names(hardware)
    if not there:
        hardware = f"{device}/hw_counters"
        there = files.names(hardware)
    return _each_once(
        (
            *_present(f"{port}/counters", files.names(f"{port}/counters"), PORT_COUNTERS),
            *_present(hardware, there, HARDWARE_COUNTERS),
        )
    )


def interface_counters(interface: str) -> tuple[CounterFiles, ...]:
    """Return the kernel's counters of any network interface; `interface` is a folder."""
    return tuple(
        CounterFiles(counter=counter, paths=[f"{interface}/{file}" for file in counter.files])
        for counter in INTERFACE_COUNTERS
    )


def limits(counters: Iterable[CounterFiles]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return, by metric, where saturating counters stay, and where wrapping counters wrap."""
    known = [one.counter for one in counters]
    stays = {it.metric: it.stays_at for it in known if it.stays_at is not None}
    wraps = {it.metric: it.wraps_at for it in known if it.wraps_at is not None}
    return stays, wraps


def _present(
    folder: str, there: Iterable[str], counters: Iterable[Counter]
) -> Iterator[CounterFiles]:
    names = frozenset(there)
    for counter in counters:
        paths = [f"{folder}/{file}" for file in counter.files if file in names]
        if paths:
            yield CounterFiles(counter=counter, paths=paths)


def _each_once(found: Iterable[CounterFiles]) -> tuple[CounterFiles, ...]:
    first: dict[str, CounterFiles] = {}
    for one in found:
        first.setdefault(one.counter.metric, one)
    return tuple(first.values())
