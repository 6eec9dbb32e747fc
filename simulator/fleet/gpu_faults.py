"""Faults within a GPU. Meanings of the codes: NVIDIA's Xid catalogue and nvml.h."""

from gpuvigil.model import EventKind, Severity, Unmeasured

from . import kernel_log_lines
from .changes import Operation, Quantity
from .site import REBOOT_SECONDS, FaultKind, Site

_GPU, _WORK, _PHYSICS, _NODE = Quantity.GPU, Quantity.WORK, Quantity.PHYSICS, Quantity.NODE
_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
# This share of losses comes with errors of the PCIe link [Meta: 43 and 63 % on two clusters].
_BUS_ERRORS_FIRST = 0.5


def _cured(site: Site) -> None:
    """Drain the node and reset the GPU, which ends the fault."""
    site.report_event(EventKind.GPU_RESET, ("gpu", site.gpu), at=site.end)


def _row_replaced(site: Site) -> None:
    """Take a memory row out of use: one bank has one spare row less."""
    site.add_change(_GPU, "remap_banks_max", (site.gpu,), Operation.STEP, -1.0)
    site.add_change(_GPU, "remap_banks_high", (site.gpu,), Operation.STEP)


def off_the_bus(site: Site) -> None:
    if site.dice.share() < _BUS_ERRORS_FIRST:
        site.bus_error("Uncorrected (Fatal)")
    site.add_change(_GPU, "lost", (site.gpu,), Operation.SET, float(Unmeasured.LOST))
    site.add_change(_GPU, "pcie_present", (site.gpu,), Operation.SET, 0.0)
    site.add_change(_NODE, "gpus_answering", (site.node,), Operation.ADD, -1.0)
    site.xid(79)
    site.xid(154, at=site.start + 1.0, action=kernel_log_lines.REBOOT)
    site.report_event(EventKind.GPU_LOST, ("gpu", site.gpu), at=site.start + 2.0)
    hangs = site.dice.between(30.0, 600.0)
    site.stop((site.gpu,), linger=hangs)
    site.wait(hangs, besides=(site.gpu,))
    site.missing = True
    site.reboot(site.end)
    site.report_event(EventKind.GPU_BACK, ("gpu", site.gpu), at=site.end + 1.0)


def gsp_hang(site: Site) -> None:
    site.add_change(
        _GPU, "mute", (site.gpu,), Operation.SET, float(Unmeasured.DRIVER_NOT_ANSWERING)
    )
    site.add_change(_NODE, "gpus_answering", (site.node,), Operation.ADD, -1.0)
    site.xid(119, at=site.start + 6.0)
    site.xid(154, at=site.start + 7.0)
    site.report_event(EventKind.DRIVER_SILENT, ("gpu", site.gpu), at=site.start + 12.0)
    site.stop((site.gpu,), linger=600.0)
    site.wait(600.0, besides=(site.gpu,))
    _cured(site)
    site.report_event(EventKind.DRIVER_BACK, ("gpu", site.gpu), at=site.end + 1.0)


def ecc_contained(site: Site) -> None:
    for name in ("ecc_uncorrected_errors", "ecc_uncorrected_dram_errors"):
        site.add_change(_GPU, name, (site.gpu,), Operation.STEP)
    site.add_change(_GPU, "remapped_rows_uncorrected", (site.gpu,), Operation.STEP)
    site.add_change(_GPU, "remap_pending", (site.gpu,), Operation.SET)
    _row_replaced(site)
    site.xid(94, process="python")
    site.xid(63, at=site.start + 1.0)
    site.stop((site.gpu,), linger=20.0, shut=False)
    _cured(site)


def ecc_uncontained(site: Site) -> None:
    for name in ("ecc_uncorrected_errors", "ecc_uncorrected_dram_errors"):
        site.add_change(_GPU, name, (site.gpu,), Operation.STEP, 2.0)
    site.add_change(_GPU, "recovery_action", (site.gpu,), Operation.SET, 4.0)
    site.add_change(_GPU, "remapped_rows_uncorrected", (site.gpu,), Operation.STEP)
    site.add_change(_GPU, "remap_pending", (site.gpu,), Operation.SET)
    _row_replaced(site)
    site.xid(48)
    site.xid(95, at=site.start + 1.0)
    site.xid(63, at=site.start + 2.0)
    site.xid(154, at=site.start + 2.0, action=kernel_log_lines.DRAIN_AND_RESET)
    site.stop((site.gpu,))
    _cured(site)


def sbe_storm(site: Site) -> None:
    for name in ("ecc_corrected_errors", "ecc_corrected_dram_errors"):
        site.add_change(_GPU, name, (site.gpu,), Operation.COUNT, site.size)
    if site.size > 1000.0:
        site.xid(92, at=site.start + 60.0)


def sbe_growth(site: Site) -> None:
    for name in ("ecc_corrected_errors", "ecc_corrected_dram_errors"):
        site.add_change(_GPU, name, (site.gpu,), Operation.COUNT, site.size / 3600.0)
    site.delay = 3600.0 / site.size


def remap_pending(site: Site) -> None:
    site.add_change(_GPU, "remap_pending", (site.gpu,), Operation.SET)
    site.add_change(_GPU, "remapped_rows_corrected", (site.gpu,), Operation.STEP)
    _row_replaced(site)
    site.xid(63)
    _cured(site)


def remap_failure(site: Site) -> None:
    site.add_change(_GPU, "remap_failure", (site.gpu,), Operation.SET)
    site.add_change(_GPU, "remap_banks_max", (site.gpu,), Operation.STEP, -1.0)
    site.add_change(_GPU, "remap_banks_none", (site.gpu,), Operation.SET)
    site.add_change(_GPU, "remapped_rows_uncorrected", (site.gpu,), Operation.STEP, 8.0)
    for name in ("ecc_uncorrected_errors", "ecc_uncorrected_dram_errors"):
        site.add_change(_GPU, name, (site.gpu,), Operation.STEP)
    site.xid(48)
    site.xid(64, at=site.start + 1.0)
    site.stop((site.gpu,), shut=False)


def sram_threshold(site: Site) -> None:
    site.add_change(_GPU, "sram_threshold_exceeded", (site.gpu,), Operation.SET)
    for name in ("ecc_uncorrected_errors", "ecc_uncorrected_sram_errors", "sram_parity_errors",
                 "sram_sm_errors"):  # fmt: skip
        site.add_change(_GPU, name, (site.gpu,), Operation.STEP, 5.0)
    site.xid(48)
    site.xid(172, at=site.start + 1.0)
    site.stop((site.gpu,), shut=False)


def retired_pages(site: Site) -> None:
    site.add_change(_GPU, "retired_pages_uncorrected", (site.gpu,), Operation.STEP, 16.0)
    site.add_change(_GPU, "retired_pages_corrected", (site.gpu,), Operation.STEP, site.size - 16.0)
    site.add_change(_GPU, "retired_pages_pending", (site.gpu,), Operation.SET)
    site.xid(63)


def inforom(site: Site) -> None:
    at = site.start
    while at < site.end:
        site.xid(93, at=at)
        at += 7200.0 * (0.5 + site.dice.share())


def heatsink(site: Site) -> None:
    site.add_change(_PHYSICS, "resistance", (site.gpu,), Operation.SWELL, site.size)
    site.delay = site.order.seconds / 8.0


def hardware_thermal(site: Site) -> None:
    site.add_change(_PHYSICS, "resistance", (site.gpu,), Operation.TIMES, site.size)
    site.delay = 60.0


def stuck_clocks(site: Site) -> None:
    site.add_change(_PHYSICS, "ceiling", (site.gpu,), Operation.SET, site.size)


def lowered_limit(site: Site) -> None:
    site.add_change(_PHYSICS, "limit_watts", (site.gpu,), Operation.TIMES, site.size)
    site.add_change(_GPU, "power_limit_requested_watts", (site.gpu,), Operation.TIMES, site.size)


def slow_gpu(site: Site) -> None:
    site.add_change(_PHYSICS, "speed", (site.gpu,), Operation.TIMES, 1.0 - site.size)


def ecc_mode(site: Site) -> None:
    """Switch ECC off for the next boot, which was before the fault's start."""
    site.add_change(_GPU, "ecc_mode", (site.gpu,), Operation.SET, 0.0)
    site.add_change(_GPU, "ecc_mode_pending", (site.gpu,), Operation.SET, 0.0)


def mig_mode(site: Site) -> None:
    """Switch MIG on without any slices: the driver reports no utilisation, and nothing runs."""
    site.add_change(_GPU, "mig_mode", (site.gpu,), Operation.SET)
    site.add_change(_GPU, "mig_mode_pending", (site.gpu,), Operation.SET)
    site.add_change(_GPU, "sliced", (site.gpu,), Operation.SET)
    site.stop((site.gpu,), linger=5.0)


def vbios(site: Site) -> None:
    """Give the GPU an older VBIOS, as a board from repair, or one that the last update left out."""
    site.vbios = "96.00.74.00.01"


def missing_since_boot(site: Site) -> None:
    """Lose a GPU at a boot: the collector knows it from before, and reports it as lost."""
    up = site.start + REBOOT_SECONDS
    site.reboot(up)
    after = tuple(gpu for gpu in site.gpus() if gpu > site.gpu)
    if after:
        site.add_change(_GPU, "index", after, Operation.ADD, -1.0, span=(up, site.end))
    site.moved = True
    site.add_change(_GPU, "lost", (site.gpu,), Operation.SET, float(Unmeasured.LOST))
    site.add_change(_GPU, "pcie_present", (site.gpu,), Operation.SET, 0.0)
    site.add_change(_NODE, "gpus_answering", (site.node,), Operation.ADD, -1.0)
    site.report_event(EventKind.GPU_LOST, ("gpu", site.gpu), at=up + 3.0)
    site.stop(site.gpus(), linger=1.0, shut=False)
    site.stop((site.gpu,), linger=1.0)
    site.missing = True
    site.delay = REBOOT_SECONDS
    site.reboot(site.end)
    site.report_event(EventKind.GPU_BACK, ("gpu", site.gpu), at=site.end + 1.0)


def missing_since_installation(site: Site) -> None:
    site.add_change(_GPU, "absent", (site.gpu,), Operation.SET)
    after = tuple(gpu for gpu in site.gpus() if gpu > site.gpu)
    if after:
        site.add_change(_GPU, "index", after, Operation.ADD, -1.0)
    site.add_change(_NODE, "gpus_answering", (site.node,), Operation.ADD, -1.0)
    site.add_change(_NODE, "gpus_expected", (site.node,), Operation.ADD, -1.0)
    site.stop((site.gpu,), linger=1.0)
    site.unlisted = True


def hung_process(site: Site) -> None:
    """Let the whole job spin: no GPU of it differs from the one that the fault is filed under."""
    gpus = site.peers or (site.gpu,)
    site.add_change(_WORK, "spin", gpus, Operation.SET)
    others = [("gpu", gpu) for gpu in gpus if gpu != site.gpu]
    site.affected += others
    site.also += others
    site.hangs = gpus


def zombie(site: Site) -> None:
    site.stop((site.gpu,), linger=5.0)
    span = (site.start + 5.0, site.end)
    site.add_change(_GPU, "memory_used_bytes", (site.gpu,), Operation.SET, 3.1e10, span=span)
    site.add_change(_GPU, "compute_processes", (site.gpu,), Operation.SET, span=span)
    site.delay = 300.0


_LEAVE = "Drain the node and reboot it; if it comes back, check power, seating and heat."
_RESET = "Drain the node and reset the GPU."
_REPLACE = "Drain the node, run the field diagnostic, and have the GPU replaced."

KINDS = (
    FaultKind(key="off the bus", target="gpu", make=off_the_bus, severity=_CRITICAL,
              action=_LEAVE, cause="the GPU no longer answers on PCIe",
              symptoms=("job failed", "peers wait"), hours=(0.3, 4.0, 72.0), names_itself=True),
    FaultKind(key="GSP hang", target="gpu", make=gsp_hang, severity=_CRITICAL, action=_RESET,
              cause="the GPU's system processor hangs", symptoms=("job hangs", "peers wait"),
              hours=(0.2, 2.0, 48.0), names_itself=True),
    FaultKind(key="ECC contained", target="gpu", make=ecc_contained, severity=_WARNING,
              action="Restart the program; reset the GPU when it is free.",
              cause="uncorrectable memory error, contained", symptoms=("job failed", "remap pending"),
              hours=(0.2, 5.0, 72.0), names_itself=True),
    FaultKind(key="ECC uncontained", target="gpu", make=ecc_uncontained, severity=_CRITICAL,
              action=_RESET, cause="uncorrectable memory error, not contained",
              symptoms=("job failed", "remap pending"), hours=(0.2, 3.0, 48.0),
              names_itself=True),
    FaultKind(key="SBE storm", target="gpu", make=sbe_storm, severity=_WARNING, action=_REPLACE,
              cause="memory corrects errors all the time", sizes=(10.0, 20_000.0), unit="errors/s",
              hours=(0.2, 6.0, 96.0), names_itself=True),
    FaultKind(key="SBE growth", target="gpu", make=sbe_growth, severity=_INFO,
              action="Watch it; run the field diagnostic at the next maintenance.",
              cause="memory corrects more errors than it used to", sizes=(2.0, 200.0),
              unit="errors/h", hours=(24.0, 120.0, 480.0), names_itself=True),
    FaultKind(key="remap pending", target="gpu", make=remap_pending, severity=_INFO,
              action="Reset the GPU when it is free.", cause="a row remap waits for a reset",
              hours=(2.0, 30.0, 168.0), names_itself=True),
    FaultKind(key="remap failure", target="gpu", make=remap_failure, severity=_CRITICAL,
              action=_REPLACE, cause="a memory row could not be replaced", hours=(1.0, 12.0, 96.0),
              names_itself=True),
    FaultKind(key="SRAM threshold", target="gpu", make=sram_threshold, severity=_CRITICAL,
              action=_REPLACE, cause="on-chip memory has more errors than the maker bears",
              hours=(1.0, 12.0, 96.0), names_itself=True),
    FaultKind(key="retired pages", target="gpu", make=retired_pages, severity=_CRITICAL,
              action=_REPLACE, cause="the list of retired pages is full", sizes=(63.0, 64.0),
              unit="pages", discrete=True, hours=(4.0, 24.0, 240.0), names_itself=True),
    FaultKind(key="InfoROM", target="gpu", make=inforom, severity=_WARNING,
              action="Ask support.", cause="the InfoROM's write budget is used up",
              hours=(6.0, 48.0, 240.0), names_itself=True),
    FaultKind(key="heatsink", target="gpu", make=heatsink, severity=_WARNING,
              action="Check the GPU's heatsink, its seating and the airflow.",
              cause="the heatsink conducts less and less", symptoms=("hot", "clocks give way"),
              sizes=(0.1, 0.6), unit="share of thermal resistance", hours=(24.0, 120.0, 480.0),
              nvidia=False),
    FaultKind(key="HW thermal", target="gpu", make=hardware_thermal, severity=_CRITICAL,
              action="Drain the node; check fans, heatsink and inlet.",
              cause="the GPU is so hot that the hardware halves its clocks",
              symptoms=("hot", "job slow"), sizes=(4.0, 7.0), unit="times thermal resistance",
              hours=(0.1, 1.0, 24.0), names_itself=True),
    FaultKind(key="stuck clocks", target="gpu", make=stuck_clocks, severity=_WARNING,
              action=_RESET, cause="the clocks do not rise under load", symptoms=("job slow",),
              sizes=(0.2, 0.85), unit="share of the clock", hours=(0.1, 4.0, 120.0),
              nvidia=False, unread=("clocks", ("slow GPU",))),
    FaultKind(key="lowered power limit", target="gpu", make=lowered_limit, severity=_INFO,
              action="Set the power limit back to its default.",
              cause="somebody lowered the power limit", symptoms=("clocks give way", "job slow"),
              sizes=(0.4, 0.9), unit="share of the limit", hours=(2.0, 48.0, 336.0), nvidia=False,
              names_itself=True),
    FaultKind(key="slow GPU", target="gpu", make=slow_gpu, severity=_WARNING,
              action="Take the GPU out of large jobs and run a benchmark on it.",
              cause="the GPU gets less done at the same clock", symptoms=("job slow",),
              sizes=(0.02, 0.25), unit="share of the speed", hours=(0.15, 12.0, 240.0), nvidia=False),
    FaultKind(key="ECC mode drift", target="gpu", make=ecc_mode, severity=_WARNING,
              action="Switch ECC on, then reset the GPU.", cause="ECC is off on this GPU alone",
              hours=(6.0, 72.0, 480.0), names_itself=True),
    FaultKind(key="MIG mode drift", target="gpu", make=mig_mode, severity=_WARNING,
              action="Switch MIG off, then reset the GPU.", cause="MIG is on on this GPU alone",
              symptoms=("utilisation not measured",), hours=(2.0, 48.0, 336.0),
              names_itself=True),
    FaultKind(key="VBIOS drift", target="gpu", make=vbios, severity=_INFO,
              action="Bring the GPU to the VBIOS version of its kin.",
              cause="the GPU has another VBIOS version than its kin", hours=(6.0, 96.0, 480.0),
              names_itself=True),
    FaultKind(key="missing since boot", target="gpu", make=missing_since_boot,
              severity=_CRITICAL, action=_LEAVE, cause="the GPU did not come up with the node",
              symptoms=("indices moved",), hours=(0.5, 6.0, 96.0)),
    FaultKind(key="missing since installation", target="gpu", make=missing_since_installation,
              severity=_WARNING, action="Compare with the order; check seating and power.",
              cause="the node never had as many GPUs as its kin", hours=(1e6, 1e6, 1e6)),
    FaultKind(key="hung process", target="gpu", make=hung_process, severity=_WARNING,
              action="Ask the job's owner; end the job.",
              cause="kernels spin and get nothing done: 100 % utilisation at low power",
              symptoms=("peers wait",), hours=(0.2, 1.5, 36.0), nvidia=False),
    FaultKind(key="zombie memory", target="gpu", make=zombie, severity=_WARNING,
              action="End the process that still holds the memory.",
              cause="a process of a job that is over holds memory", hours=(0.2, 2.0, 72.0),
              nvidia=False),
)  # fmt: skip
