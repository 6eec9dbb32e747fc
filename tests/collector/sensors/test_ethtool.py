"""Statistics of network drivers, asked of this machine's kernel."""

import array
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.sensors import ethtool, link_statistics
from collector.sensors.ethtool import Statistics

ROOT = Path(__file__).parents[3]
# A network namespace of its own with a pair of veths that have room for four queues.
PAIR = "ip link add gv0 numrxqueues 4 numtxqueues 4 type veth peer name gv1"
SET_CHANNELS = struct.Struct("=9I")  # ETHTOOL_SCHANNELS; the last four: rx, tx, other, combined


def in_a_namespace(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "-rn", "sh", "-c", f'{PAIR} && exec "$@"', "sh", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.medium
def test_a_driver_that_gets_queues_is_read_by_its_new_names() -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare and ip")
    if in_a_namespace("true").returncode != 0:
        pytest.skip("no network namespace may be made here")
    done = in_a_namespace(sys.executable, "-m", "tests.collector.sensors.test_ethtool")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    # Linux, drivers/net/veth.c.
    assert told["one queue"].keys() == {"peer_ifindex", "rx_queue_0_drops"}
    assert told["one queue"]["peer_ifindex"] > 0
    assert told["four queues"].keys() == {
        "peer_ifindex",
        *(f"rx_queue_{queue}_drops" for queue in range(4)),
    }
    assert told["lo"] == "Operation not supported"
    assert told["one of another namespace"] == "No such device"


@pytest.mark.parametrize("name", ["gpuvigil-no-such", "a-name-that-is-too-long"])
def test_an_interface_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(OSError, match="No such device"):
        Statistics(name, lambda _: True).read()


def test_every_interface_of_this_machine_answers_with_whole_numbers_or_an_error() -> None:
    answers: list[Mapping[str, int]] = []
    errors: list[str | None] = []
    interfaces = sorted(Path("/sys/class/net").iterdir())
    for interface in interfaces:
        try:
            answers.append(link_statistics.reader_of(str(interface))())
        except OSError as error:
            errors.append(error.strerror)
    assert len(answers) + len(errors) == len(interfaces)
    assert all(errors)
    assert all(isinstance(count, int) for told in answers for count in told.values())


def _wanted(name: str) -> bool:
    return name.endswith(("ifindex", "_drops")) and "xdp" not in name


def _tell(names: Sequence[str]) -> None:
    statistics = Statistics("gv0", _wanted)
    told: dict[str, Any] = {}
    for queues, called in ((1, "one queue"), (4, "four queues")):
        asked = SET_CHANNELS.pack(0x3D, 0, 0, 0, 0, queues, queues, 0, 0)
        ethtool.ask("gv0", array.array("B", asked))
        told[called] = dict(statistics.read())
    for name, called in zip(names, ("lo", "one of another namespace"), strict=True):
        try:
            Statistics(name, lambda _: True).read()
        except OSError as error:
            told[called] = error.strerror
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    _tell(("lo", "eth0"))
