"""What is read and written: own disks, NFS and Lustre, as the kernel writes of them."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from collector.sensors.storage import Storage

DISKS = """\
 259       0 nvme0n1 {read} 0 {read} 0 {written} 0 {written} 0 0 0 0
 259       1 nvme0n1p1 {read} 0 {read} 0 {written} 0 {written} 0 0 0 0
   9       0 md0 {read} 0 {read} 0 {written} 0 {written} 0 0 0 0
   7       0 loop0 torn
"""
MOUNTS = """\
36 25 0:41 / /data rw - nfs4 server:/a rw
37 25 0:41 /b /more rw - nfs4 server:/a/b rw
38 25 0:42 / /home rw - nfs server:/home rw
"""


def bytes_line(read: int, written: int) -> str:
    return f"\tbytes:\t1 2 3 4 {read} {written} 7 8\n"


def stats(read: int, written: int, home: int = 0) -> str:
    return (
        "device proc mounted on /proc with fstype proc\n"
        "device server:/a mounted on /data with fstype nfs4 statvers=1.1\n"
        f"\topts:\trw\n{bytes_line(read, written)}\tper-op statistics\n"
        "device server:/a/b mounted on /more with fstype nfs4 statvers=1.1\n"
        f"{bytes_line(read, written)}"
        "device server:/home mounted on /home with fstype nfs statvers=1.1\n"
        f"{bytes_line(home, home)}"
        "device tmpfs mounted on /run with fstype tmpfs\n\tbytes:\t1 2 3 4 9999 9999 7 8\n"
    )


class Machine:
    """A /proc and a /sys, and the seconds between looks."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.now = folder / "proc", folder / "sys", 0.0
        (self.proc / "self").mkdir(parents=True)
        (self.sys / "block/nvme0n1/device").mkdir(parents=True)
        (self.sys / "block/md0").mkdir(parents=True)
        self.storage = Storage(self.proc, self.sys, lambda: self.now)

    def disks(self, read: int, written: int) -> None:
        (self.proc / "diskstats").write_text(DISKS.format(read=read, written=written))

    def nfs(self, text: str) -> None:
        (self.proc / "self/mountinfo").write_text(MOUNTS)
        (self.proc / "self/mountstats").write_text(text)

    def lustre(self, text: str) -> None:
        folder = self.sys / "kernel/debug/lustre/llite/work-ffff88"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stats").write_text(text)

    def look(self, after: float = 10.0) -> dict[str, int]:
        self.now += after
        return dict(self.storage.read())


def test_disks_that_are_hardware_count_and_what_is_made_of_them_does_not(tmp_path: Path) -> None:
    it = Machine(tmp_path)
    it.disks(100, 1000)
    assert it.look() == {"disk_read_bytes": 0, "disk_write_bytes": 0}
    it.disks(103, 1010)
    assert it.look() == {"disk_read_bytes": 3 * 512, "disk_write_bytes": 10 * 512}


def test_a_file_system_that_is_mounted_twice_counts_once(tmp_path: Path) -> None:
    it = Machine(tmp_path)
    it.nfs(stats(1_000, 5_000))
    it.look()
    it.nfs(stats(1_500, 9_000, home=7))
    assert it.look() == {"shared_read_bytes": 507, "shared_write_bytes": 4_007}


def test_a_mount_that_goes_and_comes_takes_nothing_with_it(tmp_path: Path) -> None:
    it = Machine(tmp_path)
    it.nfs(stats(1_000, 1_000))
    it.look()
    it.nfs(stats(3_000, 1_000))
    before = it.look()
    it.nfs("")
    assert it.look() == before
    it.nfs(stats(10, 20))  # mounted anew: its counters began again
    assert it.look() == {"shared_read_bytes": 2_010, "shared_write_bytes": 20}


def test_lustre_says_what_its_clients_moved(tmp_path: Path) -> None:
    it = Machine(tmp_path)
    line = "{}_bytes                {} samples [bytes] 4096 4194304 {}\n"
    it.lustre("snapshot_time 1 secs.nsecs\n" + line.format("read", 2, 8_000))
    it.look()
    it.lustre(line.format("read", 3, 9_000) + line.format("write", 1, 500))
    assert it.look() == {"shared_read_bytes": 1_000, "shared_write_bytes": 500}


def test_it_is_looked_at_every_ten_seconds(tmp_path: Path) -> None:
    it = Machine(tmp_path)
    it.disks(0, 0)
    it.look()
    it.disks(2, 2)
    assert it.look(9.9) == {"disk_read_bytes": 0, "disk_write_bytes": 0}
    assert it.look(0.2) == {"disk_read_bytes": 1024, "disk_write_bytes": 1024}


def test_what_is_not_there_is_not_measured(tmp_path: Path) -> None:
    assert Machine(tmp_path).look() == {}


@given(st.text(max_size=300))
def test_any_file_is_read_or_left_out(text: str) -> None:
    with TemporaryDirectory() as folder:
        it = Machine(Path(folder))
        (it.proc / "diskstats").write_text(text, encoding="utf-8")
        it.nfs(f"device a mounted on /x with fstype nfs4 \n\tbytes: {text}\n{text}")
        it.lustre(text)
        assert all(count >= 0 for count in it.look().values())
