"""Every form in which the kernel reports what this product watches, and none besides."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.sensors.kernel_event import Grade, KernelEvent, KernelEventKind
from collector.sensors.kernel_log_parser import parse, pci_address

K = KernelEventKind
GPU5, GPU9B = "0000:05:00.0", "0000:9b:00.0"

XIDS = [
    (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=1829, name=python3, Timeout after 6s of waiting for RPC"
        " response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
        KernelEvent(
            kind=K.XID,
            code=119,
            pci_address=GPU9B,
            pid=1829,
            process="python3",
            text="Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76"
            " (GSP_RM_CONTROL) (0x20801702 0x4).",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        KernelEvent(kind=K.XID, code=79, pci_address=GPU5, text="GPU has fallen off the bus."),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
        KernelEvent(kind=K.XID, code=79, pci_address=GPU5, text="GPU has fallen off the bus."),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 13, pid=22, name=a b, Graphics SM Warp Exception on"
        " (GPC 1, TPC 3, SM 0): Out Of Range Address",
        KernelEvent(
            kind=K.XID,
            code=13,
            pci_address=GPU5,
            pid=22,
            process="a b",
            text="Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        KernelEvent(
            kind=K.XID,
            code=94,
            pci_address=GPU5,
            pid=7194,
            text="Contained: CE User Channel (0x9). RST: No, D-RST: No",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00 GPU-I:05): 94, pid=7194, name=train, Contained: SM (0x1).",
        KernelEvent(
            kind=K.XID,
            code=94,
            pci_address=GPU5,
            instance=5,
            pid=7194,
            process="train",
            text="Contained: SM (0x1).",
        ),
    ),
    (
        "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0 0x1)",
        KernelEvent(
            kind=K.XID,
            code=149,
            pci_address="0008:01:00.0",
            link=8,
            text="NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0 0x1)",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link -1 (0x004505c6 0x0)",
        KernelEvent(
            kind=K.XID,
            code=149,
            pci_address=GPU5,
            text="NETIR_LINK_EVT Nonfatal XC0 i0 Link -1 (0x004505c6 0x0)",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x4 (Drain and Reset)"
        " to 0x1 (GPU Reset Required)",
        KernelEvent(
            kind=K.XID,
            code=154,
            pci_address=GPU5,
            text="GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)",
        ),
    ),
    (
        "NVRM: Xid (0000:03:00): 14, Channel 00000001",
        KernelEvent(kind=K.XID, code=14, pci_address="0000:03:00.0", text="Channel 00000001"),
    ),
    (
        "NVRM: Xid (PCI:0000:83:00): 48",
        KernelEvent(kind=K.XID, code=48, pci_address="0000:83:00.0", text=""),
    ),
    (
        "NVRM: Xid (PCI:0000:b3:00.0): 45, pid=<unknown>, name=, Ch 00000008",
        KernelEvent(kind=K.XID, code=45, pci_address="0000:b3:00.0", text="Ch 00000008"),
    ),
]

OTHERS = [
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV"
        " error (First)",
        KernelEvent(
            kind=K.SXID,
            code=12028,
            pci_address=GPU5,
            switch="nvswitch3",
            link=32,
            grade=Grade.NON_FATAL,
            text="Link 32 egress non-posted PRIV error (First)",
        ),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link -1 LTSSM Fault Up",
        KernelEvent(
            kind=K.SXID,
            code=20034,
            pci_address=GPU5,
            switch="nvswitch0",
            grade=Grade.FATAL,
            text="Link -1 LTSSM Fault Up",
        ),
    ),
    (
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 10003, Host_unhandled_interrupt",
        KernelEvent(
            kind=K.SXID,
            code=10003,
            pci_address="0000:06:00.0",
            switch="nvswitch1",
            text="Host_unhandled_interrupt",
        ),
    ),
    *(
        (line, KernelEvent(kind=K.OFF_BUS, text=off, pci_address=address, grade=Grade.FATAL))
        for off in ["GPU has fallen off the bus"]
        for line, address in [
            ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "0000:91:00.0"),
            ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "0000:01:00.0"),
            (
                "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this"
                " system has\nNVRM: fallen off the bus and is not responding to commands.",
                "0000:b3:00.0",
            ),
        ]
    ),
    (
        "nvidia 0000:05:00.0: reset done",
        KernelEvent(kind=K.PCI_RESET, text="reset done", pci_address=GPU5),
    ),
    (
        "nvidia 0000:05:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address=GPU5,
            grade=Grade.CORRECTED,
            text="Corrected, type=Physical Layer, (Receiver ID)",
        ),
    ),
    (
        "pcieport 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address="0000:07:00.0",
            grade=Grade.CORRECTED,
            text="Correctable, type=Data Link Layer, (Receiver ID)",
        ),
    ),
    (
        "igb 0000:09:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction"
        " Layer, (Requester ID)",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address="0000:09:00.0",
            grade=Grade.NON_FATAL,
            text="Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
        ),
    ),
    (
        "nvidia 0000:05:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible,"
        " (Unregistered Agent ID)",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address=GPU5,
            grade=Grade.FATAL,
            text="Uncorrectable (Fatal), type=Inaccessible, (Unregistered Agent ID)",
        ),
    ),
    (
        "pcieport 0000:64:02.0: DPC: containment event, status:0x1f01 source:0x0000",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address="0000:64:02.0",
            grade=Grade.FATAL,
            text="containment event, status:0x1f01 source:0x0000",
        ),
    ),
    (
        "nvidia 0000:17:00.0: AER: aer_status: 0x00001000, aer_mask: 0x00002000",
        KernelEvent(
            kind=K.PCIE_ERROR,
            pci_address="0000:17:00.0",
            text="aer_status: 0x00001000, aer_mask: 0x00002000",
        ),
    ),
    (
        "Out of memory: Killed process 4711 (python3) total-vm:139572kB, anon-rss:63108kB, UID:0",
        KernelEvent(kind=K.OOM_KILL, pid=4711, process="python3", text="memory ran out"),
    ),
    (
        "Memory cgroup out of memory: Killed process 11433 (my (odd) name) total-vm:25004420kB",
        KernelEvent(
            kind=K.OOM_KILL,
            pid=11433,
            process="my (odd) name",
            text="memory of its control group ran out",
        ),
    ),
    (
        "Killed process 46433 (process) total-vm:536552kB, anon-rss:12012kB",
        KernelEvent(kind=K.OOM_KILL, pid=46433, process="process", text="memory ran out"),
    ),
    (
        "Killed process 812, UID 48, (httpd) total-vm:536552kB",
        KernelEvent(kind=K.OOM_KILL, pid=812, process="httpd", text="memory ran out"),
    ),
    (
        "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 3: cc40010000100151",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.CORRECTED,
            text="CPU 2: Machine Check: 0 Bank 3: cc40010000100151",
        ),
    ),
    (
        "mce: [Hardware Error]: CPU 147: Machine Check Exception: f Bank 1: bd80000000100134",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.NON_FATAL,
            text="CPU 147: Machine Check Exception: f Bank 1: bd80000000100134",
        ),
    ),
    (
        "mce: [Hardware Error]: CPU 15: Machine Check Exception: 5 Bank 6: bb80000000000e0b",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.FATAL,
            text="CPU 15: Machine Check Exception: 5 Bank 6: bb80000000000e0b",
        ),
    ),
    (
        "mce: [Hardware Error]: Machine check events logged",
        KernelEvent(kind=K.MACHINE_CHECK, text="Machine check events logged"),
    ),
    (
        "{1}[Hardware Error]: event severity: recoverable",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.NON_FATAL,
            text="the firmware reports: recoverable",
        ),
    ),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.CORRECTED,
            text="1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        ),
    ),
    (
        "EDAC MC1: 1 UE memory scrubbing error on unknown memory",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.NON_FATAL,
            text="1 UE memory scrubbing error on unknown memory",
        ),
    ),
    (
        "Memory failure: 0x1a2b3c: Killing python3:4711 due to hardware memory corruption",
        KernelEvent(
            kind=K.MACHINE_CHECK,
            grade=Grade.NON_FATAL,
            pid=4711,
            process="python3",
            text="memory failure at page 0x1a2b3c, process killed",
        ),
    ),
]

HANGS = [
    "watchdog: BUG: soft lockup - CPU#17 stuck for 22s! [python3:28841]",
    "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:812]",
    "watchdog: Watchdog detected hard LOCKUP on cpu 5",
    "INFO: task kworker/u448:2:4711 blocked for more than 122 seconds.",
    "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
    "rcu: INFO: rcu_preempt self-detected stall on CPU",
]
DRIVES = [
    "EXT4-fs (nvme2n1): Remounting filesystem read-only",
    "XFS (nvme0n1p1): Filesystem has been shut down due to log error (0x2).",
    "XFS (dm-3): Corruption of in-memory data (0x8) detected. Shutting down filesystem.",
    "BTRFS: error (device sdb: state A) in btrfs_run_delayed_refs: errno=-5 IO failure; forced readonly",
    "nvme nvme2: Device not ready; aborting reset, CSTS=0x1",
    "nvme nvme0: Removing after probe failure status: -19",
    "nvme nvme0: Disabling device after reset failure: -19",
    "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
    "md/raid1:md0: Disk failure on nvme1n1, disabling device.",
    "blk_update_request: critical medium error, dev sda, sector 1208 op 0x0:(READ) flags 0x0",
    "critical medium error, dev nvme0n1, sector 81920 op 0x0:(READ) flags 0x84700",
]
OTHERS += [
    (line, KernelEvent(kind=K.KERNEL_HANG, text=line, grade=Grade.NON_FATAL)) for line in HANGS
]
OTHERS += [
    (line, KernelEvent(kind=K.STORAGE_ERROR, text=line, grade=Grade.FATAL)) for line in DRIVES
]

SILENT = [
    "nvme nvme2: I/O 412 QID 7 timeout, aborting",
    "nvme nvme2: I/O 412 QID 7 timeout, completion polled",
    "nvme nvme2: I/O 412 QID 7 timeout, reset controller",
    "nvme nvme2: 112/0/0 default/read/poll queues",
    "nvme nvme2: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
    "EXT4-fs (nvme2n1): mounted filesystem with ordered data mode. Opts: (null)",
    "EXT4-fs (nvme2n1): re-mounted. Opts: errors=remount-ro",
    "critical medium error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "rcu: INFO: rcu_sched kthread starved for 21003 jiffies!",
    "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Severity 0 Engine instance 60 Sub-engine instance 00",
    "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Data {0x0000003c, 0x0000003c, 0x00000000}",
    "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
    "NVRM: GPU at PCI:0000:91:00: GPU-c55b1234-d076-fa0e-d464-e4c7e08b0001",
    "NVRM: GPU Board Serial Number: 1653723052734",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  595.58",
    "nvidia 0000:05:00.0: resetting",
    "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
    "pcieport 0000:00:1c.0: AER: Corrected error received: id=00e0",
    "nvidia 0000:05:00.0:   device [10de:2330] error status/mask=00000001/0000e000",
    "nvidia 0000:05:00.0:    [ 0] RxErr",
    "Memory cgroup out of memory: Kill process 46211 (process) score 561 or sacrifice child",
    "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB",
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "mce: [Hardware Error]: TSC a97bd8ae31a ADDR 35eab5440 MISC 346485",
    "mce: [Hardware Error]: Run the above through 'mcelog --ascii'",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "{1}[Hardware Error]: event severity: info",
    "EDAC MC: Ver: 3.0.0",
    "EDAC sbridge MC0: HANDLING MCE MEMORY ERROR",
    'audit: type=1400 comm="x" name="NVRM: Xid (PCI:0000:05:00): 79, forged"',
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "",
]


@pytest.mark.parametrize(("line", "event"), XIDS + OTHERS, ids=lambda value: str(value)[:60])
def test_a_report_is_read_in_every_form(line: str, event: KernelEvent) -> None:
    assert parse(line) == event
    for before in ("[ 1843.308145] ", "<3>", "[Mon Nov 20 12:00:00 2026] ", "kernel: [  1.2] "):
        assert parse(before + line) == event


@pytest.mark.parametrize("line", SILENT)
def test_what_reports_nothing_of_its_own_is_no_event(line: str) -> None:
    assert parse(line) is None


@given(st.integers(0, 2**64 - 1))
@example(0)
@example(1)
@example(1 << 57)
@example(1 << 61)
@example(1 << 57 | 1 << 61)
@example(2**64 - 1)
@example(2**64 - 1 ^ (1 << 57 | 1 << 61))
@example(2**64 - 1 ^ 1 << 57)
def test_two_bits_of_a_banks_status_say_how_bad_it_is(status: int) -> None:
    bits = f"{status:064b}"[::-1]
    bad = Grade.FATAL if bits[57] == "1" else Grade.NON_FATAL
    event = parse(f"mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 3: {status:016x}")
    assert event is not None
    assert event.grade is (bad if bits[61] == "1" else Grade.CORRECTED)


@pytest.mark.parametrize("link", [-1, 0, 1, 17])
def test_a_link_is_named_by_its_number_and_is_none_below_zero(link: int) -> None:
    for line in (
        f"NVRM: Xid (PCI:0000:05:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link {link} (0x1)",
        f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link {link} LTSSM Fault Up",
    ):
        event = parse(line)
        assert event is not None
        assert event.link == (link if link >= 0 else None)


@pytest.mark.parametrize("severity", ["corrected", "recoverable", "fatal", "unheard"])
def test_what_the_firmware_says_has_its_grade_and_a_new_word_has_none(severity: str) -> None:
    event = parse(f"{{1}}[Hardware Error]: event severity: {severity}")
    assert event is not None
    grades = {
        "corrected": Grade.CORRECTED,
        "recoverable": Grade.NON_FATAL,
        "fatal": Grade.FATAL,
    }
    assert (event.text, event.grade) == (
        f"the firmware reports: {severity}",
        grades.get(severity),
    )


def test_a_text_is_shown_up_to_400_characters_and_on_one_line() -> None:
    def said(text: str) -> str:
        event = parse(f"NVRM: Xid (PCI:0000:05:00): 31, {text}")
        assert event is not None
        return event.text

    assert said("x" * 400) == "x" * 400
    assert said("x" * 401) == "x" * 399 + "…"
    assert said("a\x07\n \tb") == "a b"


@given(
    st.text()
    | st.builds(
        str.join,
        st.just(" "),
        st.lists(st.sampled_from(" ".join(line for line, _ in XIDS + OTHERS).split(" "))),
    )
)
def test_no_line_is_too_strange(line: str) -> None:
    event = parse(line)
    assert event is None or len(event.text) <= 400


@given(
    st.integers(0, 2**16 - 1),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 7),
)
def test_an_address_is_the_same_in_every_spelling(
    domain: int, bus: int, device: int, function: int
) -> None:
    address = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    nvml = f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    assert pci_address(address) == pci_address(nvml) == address
    assert pci_address(address[:-2]) == address[:-1] + "0"


def test_what_is_no_address_is_none() -> None:
    assert pci_address("GPU-123") is None
    assert pci_address("") is None
