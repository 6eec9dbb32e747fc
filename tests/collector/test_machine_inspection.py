"""Power supplies, fans, memory errors and mounts, from a tree like sysfs and from real mounts."""

import resource
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.machine import parts
from collector.machine.inspection_child import _had_time, inspect
from collector.machine.inspection_result import InspectionResult, line, parse
from collector.machine.inspection_supervisor import Machine
from collector.machine.mounts import used_share, watched
from gpuvigil.clock import ManualClock, SystemClock
from gpuvigil.config import CollectorSettings
from tests.disk import Disk
from tests.polling import wait_until
from tests.unanswered import Unanswered, is_possible


def put(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text + "\n")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    hwmon = root / "class/hwmon"
    put(hwmon / "hwmon0", name="nct6775", fan1_input="1200", fan1_min="500", fan2_input="0")
    put(hwmon / "hwmon1", name="dps1300", in1_label="vin", in1_input="229000", in2_label="vout1")
    put(root / "devices/system/edac/mc/mc0", ce_count="3", ue_count="0")
    put(root / "devices/system/edac/mc/mc1", ce_count="4", ue_count="1")
    return root


def words(found: list[parts.Part]) -> dict[str, str]:
    return {part.name: "works" if part.works else part.why for part in found}


def test_fans_say_that_they_fail_or_turn_too_slowly(sysfs: Path) -> None:
    chip = sysfs / "class/hwmon/hwmon0"
    assert words(parts.fans(sysfs)) == {"nct6775 fan1": "works", "nct6775 fan2": "stands still"}
    put(chip, fan1_input="300", fan2_fault="1", fan2_label="rear")
    assert words(parts.fans(sysfs)) == {
        "nct6775 fan1": "300 rpm, at least 500",
        "nct6775 rear": "says that it failed",
    }


def test_supplies_without_input_are_found_on_pmbus_and_among_several_mains(sysfs: Path) -> None:
    assert [part.works for part in parts.supplies(sysfs)] == [True]
    put(sysfs / "class/hwmon/hwmon1", in1_input="0")
    (supply,) = parts.supplies(sysfs)
    assert (supply.works, supply.why, supply.sure) == (False, "no input", False)
    put(sysfs / "class/hwmon/hwmon1", in1_lcrit_alarm="1")
    assert parts.supplies(sysfs)[0].sure
    mains = sysfs / "class/power_supply"
    put(mains / "AC0", type="Mains", online="0")
    assert len(parts.supplies(sysfs)) == 1  # a workstation on its battery
    put(mains / "AC1", type="Mains", online="1")
    put(mains / "mouse", type="Battery", scope="Device", health="Dead")
    found = words(parts.supplies(sysfs))
    assert (found["AC0"], found["AC1"], "mouse" in found) == ("no input", "works", False)


def test_memory_errors_are_summed_over_controllers(sysfs: Path, tmp_path: Path) -> None:
    assert parts.memory_errors(sysfs) == (7, 1)
    assert parts.memory_errors(tmp_path) is None


def test_network_mounts_and_local_disks_are_watched_once(tmp_path: Path) -> None:
    put(
        tmp_path / "self",
        # The unit's ProtectSystem=strict shows each as `ro`; what it is stands at the end.
        mountinfo="26 1 8:1 / / ro,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
        "27 26 8:17 / /ro rw,noatime master:2 propagate_from:1 - ext4 /dev/sdb1 ro\n"
        "28 26 0:40 / /mnt/my\\040home ro - nfs4 fs:/home rw\n"
        "29 26 0:40 / /var/lib/kubelet/pods/1 rw - nfs4 fs:/home rw\n"
        "30 26 8:1 /var/lib/gpuvigil /var/lib/gpuvigil rw - ext4 /dev/sda1 rw\n"
        "31 26 0:21 / /proc rw - proc proc rw\n"
        "32 26 0:22 / /broken rw",
    )
    assert [(one.path, one.counted) for one in watched(tmp_path, ())] == [
        ("/", True),
        ("/mnt/my home", False),
    ]
    assert [one.path for one in watched(tmp_path, ("/scratch",))] == ["/scratch"]


def test_a_file_system_is_as_full_as_what_lies_in_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", 1000)
    try:
        if not disk.is_there:
            pytest.skip("no file system may be mounted here")
        (disk.seen / "file").write_bytes(bytes(750 * 1024))
        assert used_share(str(disk.seen)) == pytest.approx(0.75, abs=0.02)
    finally:
        disk.end()


def test_a_chosen_mount_that_is_not_mounted_is_named(sysfs: Path, tmp_path: Path) -> None:
    place, empty, link = tmp_path / "my disk", tmp_path / "empty", tmp_path / "link"
    place.mkdir()
    empty.mkdir()
    link.symlink_to(place)
    escaped = str(place).replace(" ", "\\040")
    put(tmp_path / "proc/self", mountinfo=f"26 1 8:1 / {escaped} rw - ext4 /dev/sda1 rw")
    chosen = [f"{place}/", str(link), str(empty), "/no/such/mount"]
    seen = inspect(sysfs, tmp_path / "proc", 5.0, chosen)
    assert (seen.watched, seen.hung) == (4, ())
    assert seen.gone == tuple((path, "is not mounted") for path in (str(empty), "/no/such/mount"))
    # Who cannot read what is mounted does not know.
    assert inspect(sysfs, tmp_path / "nowhere", 5.0, chosen).gone == ()


def test_what_a_look_has_seen_goes_over_a_line(sysfs: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc/self", mountinfo="")
    seen = inspect(sysfs, tmp_path / "proc", 5.0, [str(tmp_path), "/nowhere"])
    assert (seen.memory_errors, seen.watched, seen.hung) == ((7, 1), 2, ())
    assert seen.fullest is not None
    assert seen.fullest[0] == str(tmp_path)
    assert parse(line(seen)) == seen
    with pytest.raises(ValueError, match="no look"):
        parse('{"fans": 1}')
    assert parse(line(InspectionResult())) == InspectionResult()


@pytest.mark.skipif(not is_possible(), reason="a file system of one's own takes root")
def test_a_mount_that_does_not_answer_is_named_and_the_others_are_seen(
    sysfs: Path, tmp_path: Path
) -> None:
    with Unanswered(tmp_path / "hung") as hung:
        seen = inspect(sysfs, tmp_path, 0.5, [str(tmp_path / "hung"), str(tmp_path)])
        assert seen.hung == (str(tmp_path / "hung"),)
        assert seen.fullest is not None
        hung.release()


def machine(sysfs: Path, spool: Path) -> Machine:
    spool.mkdir(exist_ok=True)
    settings = CollectorSettings(
        sysfs_root=sysfs,
        spool_directory=spool,
        machine_seconds=0.05,
        watched_mounts=("/",),
    )
    return Machine(settings, SystemClock())


@pytest.mark.server
def test_a_fan_that_turned_once_and_stands_still_is_told_by_name(
    sysfs: Path, tmp_path: Path
) -> None:
    of_node = machine(sysfs, tmp_path / "spool")

    def looked(fans: int | None) -> bool:
        said.append(of_node.keep())
        return of_node.fields()["fans_failed"] == fans

    said: list[str] = []
    wait_until("a look", lambda: looked(0), 20.0)
    assert of_node.memory_errors == (7, 1)
    # The header to which nothing is connected stands still, and always did.
    put(sysfs / "class/hwmon/hwmon0", fan1_input="0", fan1_min="0")
    wait_until("the fan", lambda: looked(1), 20.0)
    assert [words for words in said if words] == ["nct6775 fan1: stands still"]
    of_node.stop()
    # Another run of the collector knows that it turned once.
    of_node = machine(sysfs, tmp_path / "spool")
    wait_until("the fan again", lambda: looked(1), 20.0)
    # What cannot be read is not well again.
    chip = (sysfs / "class/hwmon/hwmon0").rename(tmp_path / "chip")
    wait_until("a look without fans", lambda: looked(None), 20.0)
    assert "well again" not in "".join(said)
    chip.rename(sysfs / "class/hwmon/hwmon0")
    put(sysfs / "class/hwmon/hwmon0", fan1_input="1200")
    wait_until("its return", lambda: looked(0), 20.0)
    assert said[-1] == "power supplies, fans and mounts are well again"
    of_node.stop()


@pytest.mark.server
def test_what_was_seen_long_ago_is_not_told_as_measured(
    sysfs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(datetime(2026, 1, 31, tzinfo=timezone.utc))
    settings = CollectorSettings(sysfs_root=sysfs, spool_directory=tmp_path, watched_mounts=("/",))
    of_node = Machine(settings, clock)

    def looked() -> bool:
        of_node.keep()
        return of_node.fields()["fans_failed"] == 0

    wait_until("a look", looked, 20.0)
    first = of_node.fields()
    assert (first["mounts_hung"], of_node.memory_errors) == (0, (7, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for _ in range(3):
            clock.advance(settings.machine_seconds)
            of_node.keep()
            assert of_node.fields() == first
        for _ in range(3):
            clock.advance(settings.machine_seconds)
            of_node.keep()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {*of_node.fields().values(), of_node.memory_errors} == {None}
    assert caplog.text.count("what fails of the machine is not known") == 1
    clock.advance(settings.machine_seconds)
    wait_until("another look", looked, 20.0)
    assert of_node.memory_errors == (7, 1)
    of_node.stop()


def test_what_waits_for_a_core_does_not_hang() -> None:
    me, passed = threading.get_native_id(), 1e6
    # This thread has had next to all of that time, one that was not begun none.
    assert _had_time({"mount /a": None, "mount /b": 2**22 + 1}, {}, passed, 5.0) == set()
    assert _had_time({"mount /c": me}, {}, passed, 5.0) == {"mount /c"}
    assert _had_time({"mount /c": me}, {}, 4.9, 5.0) == set()
