"""Which privileges a collector lacks, in one line each."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from collector.agent.privileges import Access, lacks, read_access
from gpuvigil.config import CollectorSettings

ALL = Access(root=True, driver=True, kernel_log=True, journal=True, others=True)
KERNEL_LOG = "the kernel log: Xids that NVML does not tell, OOM kills"
SRAM = "the SRAM error threshold of ECC"


@pytest.mark.parametrize(
    ("access", "lacking"),
    [
        (ALL, []),
        (replace(ALL, root=False), [SRAM]),
        (replace(ALL, root=False, driver=None), []),
        (replace(ALL, root=False, driver=False), ["GPUs", SRAM]),
        (replace(ALL, kernel_log=False), []),
        (replace(ALL, kernel_log=False, journal=False), [KERNEL_LOG]),
        (replace(ALL, kernel_log=None, journal=False), [KERNEL_LOG]),
        (replace(ALL, others=False), ["who holds a GPU"]),
    ],
)
def test_each_privilege_that_is_missing_is_said_once(access: Access, lacking: list[str]) -> None:
    found = lacks(access)
    assert [lack.what for lack in found] == lacking
    assert all(lack.gives for lack in found)


def test_a_machine_is_looked_at_without_touching_the_driver(tmp_path: Path) -> None:
    proc, dev = tmp_path / "proc", tmp_path / "dev"
    (proc / "1").mkdir(parents=True)
    (proc / "1/stat").write_text("1 (init) S")
    dev.mkdir()
    # To open it would wait for a writer for ever, as a driver that hangs would.
    os.mkfifo(dev / "nvidiactl")
    settings = CollectorSettings(proc_root=proc, kernel_log=dev / "kmsg")
    assert read_access(settings, dev, tmp_path) == Access(
        root=os.geteuid() == 0, driver=True, kernel_log=None, journal=False, others=True
    )
    (dev / "kmsg").write_text("")
    journal = tmp_path / "run/log/journal/0123"
    journal.mkdir(parents=True)
    (journal / "system.journal").write_text("")
    found = read_access(replace(settings, proc_root=tmp_path / "none"), dev, tmp_path)
    assert (found.kernel_log, found.journal, found.others) == (True, True, False)
    elsewhere = replace(settings, kernel_log=tmp_path / "none", journalctl="")
    found = read_access(elsewhere, dev, tmp_path)
    assert (found.kernel_log, found.journal) == (None, False)
