"""Counters of RDMA ports, by the names and in the ways that drivers have."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from collector.sensors.rdma_counters import (
    HARDWARE_COUNTERS,
    PORT_COUNTERS,
    interface_counters,
    limits,
    rdma_counters,
)
from gpuvigil.metrics import PORT, Kind
from tests.sysfs import COUNTERS, PortTree


def read(root: Path, device: str) -> dict[str, int | None]:
    folder = root / "class/infiniband" / device
    found = rdma_counters(f"{folder}/ports/1", str(folder))
    return {it.counter.metric: it.read() for it in found}


@pytest.mark.parametrize(
    ("hw_counters", "expected"),
    [
        # EFA: drivers/infiniband/hw/efa/efa_verbs.c.
        (
            {"tx_bytes": 1, "rx_bytes": 2, "tx_pkts": 3, "rx_drops": 4, "retrans_pkts": 5}
            | {"retrans_timeout_events": 6, "unresponsive_remote_events": 10}
            | {"impaired_remote_conn_events": 20, "lifespan": 10},
            {"transmit_bytes": 1, "receive_bytes": 2, "receive_discards": 4, "retransmits": 5}
            | {"path_timeouts": 36},
        ),
        # bnxt_re: drivers/infiniband/hw/bnxt_re/hw_counters.c.
        (
            {"to_retransmits": 1, "seq_err_naks_rcvd": 2, "rnr_naks_rcvd": 4, "rx_cnp_pkts": 8}
            | {"tx_cnp_pkts": 16, "rx_ecn_marked_pkts": 32, "rx_out_of_buffer": 64}
            | {"oos_drop_count": 128, "rx_roce_discards": 9, "tx_bytes": 5, "rx_bytes": 6},
            {"retransmits": 3, "receiver_not_ready": 4, "cnp_handled": 8, "cnp_sent": 16}
            | {"ecn_marked_packets": 32, "out_of_buffer": 64, "out_of_sequence": 128}
            | {"transmit_bytes": 5, "receive_bytes": 6, "receive_discards": 9},
        ),
        # irdma before and after its names changed: drivers/infiniband/hw/irdma/verbs.c.
        (
            {"tcpRetransSegs": 1, "cnpSent": 2, "cnpHandled": 3, "cnpIgnored": 4, "RxECNMrkd": 5},
            {"retransmits": 1, "cnp_sent": 2, "cnp_handled": 3, "cnp_ignored": 4}
            | {"ecn_marked_packets": 5},
        ),
        (
            {"RetransSegs": 1, "RNR sent": 2, "RNR received": 3},
            {"retransmits": 1, "out_of_buffer": 2, "receiver_not_ready": 3},
        ),
    ],
)
def test_drivers_are_read_by_their_own_names(
    tmp_path: Path, hw_counters: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    PortTree(tmp_path).bare("rdma0", hw_counters)
    assert read(tmp_path, "rdma0") == expected


def test_mlx5_retransmissions_are_the_sum_of_their_kinds(tmp_path: Path) -> None:
    tree = PortTree(tmp_path)
    tree.roce("mlx5_0")
    kinds = {"packet_seq_err": 1, "local_ack_timeout_err": 2, "implied_nak_seq_err": 4}
    adaptive = {"roce_adp_retrans": 8, "roce_adp_retrans_to": 16}
    tree.counts("mlx5_0", "hw_counters", {**kinds, **adaptive, "duplicate_request": 99})
    tree.counts("mlx5_0", "hw_counters", {"np_cnp_sent": 5, "rp_cnp_handled": 6, "lifespan": 12})
    told = read(tmp_path, "mlx5_0")
    assert (told["retransmits"], told["cnp_sent"], told["cnp_handled"]) == (31, 5, 6)
    # InfiniBand has no congestion notifications of this kind.
    tree.infiniband("mlx5_1")
    tree.counts("mlx5_1", "hw_counters", kinds)
    told = read(tmp_path, "mlx5_1")
    assert told["retransmits"] == 7
    assert "cnp_sent" not in told


def test_counters_of_the_device_stand_for_its_port_where_the_port_has_none(tmp_path: Path) -> None:
    tree = PortTree(tmp_path)
    tree.bare("mlx5_0", {})
    for file in (tmp_path / "class/infiniband/mlx5_0/ports/1/hw_counters").iterdir():
        file.unlink()
    device = tmp_path / "class/infiniband/mlx5_0/hw_counters"
    device.mkdir()
    (device / "out_of_buffer").write_text("3\n")
    assert read(tmp_path, "mlx5_0") == {"out_of_buffer": 3}


def test_a_file_that_says_it_has_nothing_is_not_read_again(tmp_path: Path) -> None:
    tree = PortTree(tmp_path)
    tree.infiniband("mlx5_0")
    tree.counts("mlx5_0", "counters", {"port_xmit_wait": "N/A (no PMA)"})
    folder = tmp_path / "class/infiniband/mlx5_0"
    found = {it.counter.metric: it for it in rdma_counters(f"{folder}/ports/1", str(folder))}
    assert found["transmit_wait_ticks"].read() is None
    tree.counts("mlx5_0", "counters", {"port_xmit_wait": 7, "symbol_error": 1})
    assert found["transmit_wait_ticks"].read() is None
    assert found["symbol_errors"].read() == 1
    # Of a sum the others stay.
    tree.counts("mlx5_0", "hw_counters", {"packet_seq_err": "N/A", "local_ack_timeout_err": 2})
    assert found["retransmits"].read() == 2


def test_a_file_that_fails_for_once_leaves_the_sum_unknown(tmp_path: Path) -> None:
    tree = PortTree(tmp_path)
    tree.infiniband("mlx5_0")
    folder = tmp_path / "class/infiniband/mlx5_0"
    tree.counts("mlx5_0", "hw_counters", {"packet_seq_err": 1, "local_ack_timeout_err": 2})
    found = {it.counter.metric: it for it in rdma_counters(f"{folder}/ports/1", str(folder))}
    file = folder / "ports/1/hw_counters/packet_seq_err"
    file.unlink()
    file.mkdir()  # what is there, and cannot be read
    assert found["retransmits"].read() is None
    file.rmdir()
    tree.counts("mlx5_0", "hw_counters", {"packet_seq_err": 5})
    assert found["retransmits"].read() == 7


def test_a_file_that_the_kernel_refuses_is_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "statistics").mkdir()
    found = {it.counter.metric: it for it in interface_counters(str(tmp_path))}
    assert found["link_downed"].read() is None
    (tmp_path / "carrier_down_count").write_text("2\n")
    assert found["link_downed"].read() is None
    assert {it.counter.metric: it.read() for it in interface_counters(str(tmp_path))}[
        "link_downed"
    ] == 2


def test_widths_are_those_of_the_kernel(tmp_path: Path) -> None:
    """Linux, drivers/infiniband/core/sysfs.c, PORT_PMA_ATTR: bits by counter."""
    bits = {it.files[0]: it.stays_at for it in PORT_COUNTERS}
    assert bits.keys() <= set(COUNTERS)
    assert bits["excessive_buffer_overrun_errors"] == 15
    assert bits["link_downed"] == 255
    assert bits["symbol_error"] == 65_535
    assert bits["port_xmit_wait"] == 4_294_967_295
    assert bits["port_xmit_data"] is None
    tree = PortTree(tmp_path)
    tree.roce("mlx5_0")
    folder = tmp_path / "class/infiniband/mlx5_0"
    stays, wraps = limits(rdma_counters(f"{folder}/ports/1", str(folder)))
    assert stays["transmit_wait_ticks"] == 2**32 - 1
    assert set(wraps.values()) == {2**32}
    assert wraps.keys() == {"out_of_buffer", "receiver_not_ready", "out_of_sequence", "retransmits"}


def test_every_counter_is_one_of_the_catalogue() -> None:
    known = {metric.name for metric in PORT.metrics if metric.kind is Kind.COUNTER}
    assert {it.metric for it in (*PORT_COUNTERS, *HARDWARE_COUNTERS)} <= known
