"""What a driver's statistics say of a link, and of the cables of a bond."""

import errno
from collections.abc import Mapping

import pytest

from collector.sensors.link_statistics import Links, is_wanted, of_link, of_links

# Names of mlx5 with priority flow control on priorities 3 and 4, beside some that say nothing of the link.
MLX5 = {
    "rx_packets": 9,
    "rx0_packets": 9,
    "rx_out_of_buffer": 1,
    "rx_discards_phy": 2,
    "rx_symbol_err_phy": 40,
    "rx_pcs_symbol_err_phy": 3,
    "rx_corrected_bits_phy": 900,
    "rx_err_lane_0_phy": 800,
    "rx_err_lane_1_phy": 70,
    "rx_prio0_discards": 2,
    "rx_prio3_pause": 7,
    "rx_prio3_pause_duration": 100,
    "rx_prio4_pause_duration": 11,
    "tx_prio3_pause_duration": 200,
    "tx_prio4_pause_duration": 22,
    "tx_prio3_pause_transition": 5,
    "tx_pause_storm_warning_events": 4,
    "tx_pause_storm_error_events": 1,
    "module_unplug": 3,
    "module_bus_stuck": 1,
    "module_high_temp": 2,
    "module_bad_shorted": 0,
}


def test_mlx5_with_flow_control_by_priority() -> None:
    assert of_link(MLX5) == {
        "symbol_errors": 3,
        "corrected_bits": 900,
        "receive_discards": 2,
        "receive_pause_microseconds": 111,
        "transmit_pause_microseconds": 222,
        "pause_storms": 5,
        "out_of_buffer": 1,
        "module_faults": 3,
    }


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (
            {"rx_global_pause_duration": 8, "tx_global_pause_duration": 9},
            {"receive_pause_microseconds": 8, "transmit_pause_microseconds": 9},
        ),
        ({"rx_symbol_err_phy": 5}, {"symbol_errors": 5}),
        ({"rx_prio0_discards": 1, "rx_prio7_discards": 2}, {"receive_discards": 3}),
        ({"rx_err_lane_0_phy": 800, "rx_err_lane_3_phy": 70}, {"corrected_bits": 870}),
        # gVNIC counts by queue.
        ({"rx_no_buffers_posted[0]": 1, "rx_no_buffers_posted[15]": 2}, {"out_of_buffer": 3}),
        ({"rx_queue_drop_cnt[0]": 1, "rx_queue_drop_cnt[15]": 2}, {"receive_discards": 3}),
        # Of ice, frames that stopped the port, as far as a rise can show: a frame is no time.
        (
            {"rx_priority_3_xoff.nic": 4, "rx_priority_5_xoff.nic": 1, "rx_priority_3_xon.nic": 4}
            | {"tx_priority_3_xoff.nic": 9},
            {"transmit_wait_ticks": 5},
        ),
        # A driver that has nothing of all this measures nothing.
        ({"rx_queue_0_drops": 2, "rx_packets": 7}, {}),
    ],
)
def test_what_a_driver_has_no_name_for_is_absent(
    statistics: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    assert of_link(statistics) == expected


def test_a_name_is_wanted_where_something_is_made_of_it() -> None:
    taken = {name for name in MLX5 if is_wanted(name)}
    assert of_link({name: MLX5[name] for name in taken}) == of_link(MLX5)
    for name in MLX5.keys() - taken:
        assert of_link({name: 1}) == {}


def test_the_cables_of_a_bond_are_counted_together() -> None:
    assert of_links(({"pause_storms": 1}, {"pause_storms": 2, "module_faults": 1})) == {
        "pause_storms": 3,
        "module_faults": 1,
    }
    assert of_links(()) == {}


class Cable:
    """An interface whose driver counts, or answers with an error."""

    def __init__(self, **statistics: int) -> None:
        self.statistics = statistics
        self.error = 0
        self.asked = 0
        self.now = self.takes = 0.0

    def read(self) -> Mapping[str, int]:
        self.asked += 1
        self.now += self.takes
        if self.error:
            raise OSError(self.error, "")
        return self.statistics


def test_a_cable_that_does_not_answer_now_leaves_the_sum_unknown() -> None:
    first, second = Cable(rx_discards_phy=5), Cable(rx_discards_phy=7)
    links = Links({"ens1": first.read, "ens2": second.read})
    assert (links.read(), links.unread) == ({"receive_discards": 12}, {})
    second.error = errno.ENODEV
    assert (links.read(), links.unread) == ({}, {"ens2": "No such device"})
    second.error = 0
    assert (links.read(), links.unread) == ({"receive_discards": 12}, {})


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL])
def test_a_driver_without_statistics_is_asked_once(refusal: int) -> None:
    cable = Cable()
    cable.error = refusal
    links = Links({"ens1": cable.read})
    assert [links.read() for _ in range(3)] == [{}, {}, {}]
    assert cable.asked == 1
    assert list(links.unread) == ["ens1"]


@pytest.mark.parametrize("error", [0, errno.ETIMEDOUT])
def test_a_driver_that_holds_up_its_caller_is_left_alone_for_ten_minutes(error: int) -> None:
    cable = Cable(rx_discards_phy=5)
    links = Links({"ens1": cable.read}, lambda: cable.now)
    cable.takes, cable.error = 3.0, error
    links.read()
    assert links.unread == {"ens1": "took 3 s"}
    cable.takes = cable.error = 0
    assert links.read() == {}
    assert cable.asked == 1
    cable.now += 600
    assert (links.read(), links.unread) == ({"receive_discards": 5}, {})
