"""The simulated GPU models: one table per model, every number with its source.

Sources, by letter:
  D  the maker's datasheet or architecture white paper of the product
  A  AcmeTrace, the distributions of two A100 clusters (Hu et al., NSDI 2024; CC-BY-4.0)
  R  our own runs on 8 x H100 (docs/reference/h100_workload_stats.csv)
  U  unchecked: from memory, or carried over from a related model by the ratio of power limits
"""

from dataclasses import dataclass

GIB = 1024**3
MHZ = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One product. Powers in W at full clocks; temperatures in degrees Celsius."""

    key: str
    name: str  # as the driver reports it
    limit_watts: float
    limit_min_watts: float
    free_watts: float  # no context
    held_watts: float  # a context, nothing computed
    sm_watts: float  # added by 100 % SM activity
    tensor_watts: float
    dram_watts: float
    sm_clock_hertz: int
    free_clock_hertz: int
    clock_step_hertz: int
    memory_clock_hertz: int
    memory_bytes: int
    links: int
    link_bytes_per_second: float  # of all links of a GPU, per direction
    pcie_generation: int
    kelvin_per_watt: float  # core above its inlet air
    settle_seconds: float  # time constant of the core's temperature
    operating_celsius: float  # software lowers the clocks above it
    slowdown_celsius: float  # hardware halves the clocks above it
    shutdown_celsius: float
    memory_offset_celsius: float  # memory sensor = offset + slope x core
    memory_slope: float
    vbios: str | None = None  # in the form that nvidia-smi shows; the digits are made up
    part_number: str | None = None
    profiled: bool  # GPM: SM, tensor and DRAM activity without root
    nvidia: bool = True
    nvlink_5: bool = False
    margins: bool = True  # T-limits instead of absolute thresholds (Hopper and later)
    sources: str = ""


_A100 = GpuModel(
    key="A100",
    vbios="92.00.A0.00.05",
    part_number="692-2G506-0210-003",
    name="NVIDIA A100-SXM4-80GB",
    limit_watts=400.0,
    limit_min_watts=100.0,
    free_watts=60.0,
    held_watts=88.0,
    sm_watts=230.0,
    tensor_watts=150.0,
    dram_watts=185.0,
    sm_clock_hertz=1410 * MHZ,
    free_clock_hertz=210 * MHZ,
    clock_step_hertz=15 * MHZ,
    memory_clock_hertz=1593 * MHZ,
    memory_bytes=80 * GIB,
    links=12,
    link_bytes_per_second=300e9,
    pcie_generation=4,
    kelvin_per_watt=0.095,
    settle_seconds=28.0,
    operating_celsius=85.0,
    slowdown_celsius=89.0,
    shutdown_celsius=92.0,
    memory_offset_celsius=26.8,
    memory_slope=0.6,
    profiled=False,
    margins=False,
    sources=(
        "limit, clock, memory, links, PCIe: D; free and held power: A (12 % and 36 % of the power"
        " distribution); kelvin per watt and memory temperature: A (core 27/39/51/66 beside memory"
        " 43/51/57/67 at equal shares); shares of SM, tensor and DRAM, thresholds, time constant: U"
    ),
)
_H100 = GpuModel(
    key="H100",
    vbios="96.00.A5.00.01",
    part_number="692-2G520-0200-000",
    name="NVIDIA H100 80GB HBM3",
    limit_watts=700.0,
    limit_min_watts=200.0,
    free_watts=71.0,
    held_watts=118.0,
    sm_watts=430.0,
    tensor_watts=250.0,
    dram_watts=330.0,
    sm_clock_hertz=1980 * MHZ,
    free_clock_hertz=345 * MHZ,
    clock_step_hertz=15 * MHZ,
    memory_clock_hertz=2619 * MHZ,
    memory_bytes=85_520_809_984,
    links=18,
    link_bytes_per_second=450e9,
    pcie_generation=5,
    kelvin_per_watt=0.0605,
    settle_seconds=24.0,
    operating_celsius=87.0,
    slowdown_celsius=89.0,
    shutdown_celsius=95.0,
    memory_offset_celsius=26.8,
    memory_slope=0.6,
    profiled=True,
    sources=(
        "limit, clock, memory, links, PCIe: D; free 71 W, held 118 W, the shares of SM, tensor and"
        " DRAM (fitted to 547 W at 0.64/0.19/0.32 and 146 W at 0.05/0.01/0.05), kelvin per watt"
        " (29 C at 71 W, 59 C at 547 W, 68 C at 693 W): R; memory temperature: as A100; time"
        " constant, thresholds: U"
    ),
)
_H200 = GpuModel(
    key="H200",
    vbios="96.00.BB.00.03",
    part_number="692-2G525-0220-001",
    name="NVIDIA H200",
    limit_watts=700.0,
    limit_min_watts=200.0,
    free_watts=76.0,
    held_watts=122.0,
    sm_watts=420.0,
    tensor_watts=245.0,
    dram_watts=345.0,
    sm_clock_hertz=1980 * MHZ,
    free_clock_hertz=345 * MHZ,
    clock_step_hertz=15 * MHZ,
    memory_clock_hertz=3201 * MHZ,
    memory_bytes=141 * 10**9,
    links=18,
    link_bytes_per_second=450e9,
    pcie_generation=5,
    kelvin_per_watt=0.0605,
    settle_seconds=24.0,
    operating_celsius=87.0,
    slowdown_celsius=89.0,
    shutdown_celsius=95.0,
    memory_offset_celsius=26.8,
    memory_slope=0.6,
    profiled=True,
    sources="limit, memory, links, PCIe: D; the rest as H100: U",
)
_B200 = GpuModel(
    key="B200",
    vbios="97.00.5C.00.1E",
    part_number="692-2G548-0200-000",
    name="NVIDIA B200",
    limit_watts=1000.0,
    limit_min_watts=300.0,
    free_watts=140.0,
    held_watts=190.0,
    sm_watts=590.0,
    tensor_watts=360.0,
    dram_watts=470.0,
    sm_clock_hertz=1965 * MHZ,
    free_clock_hertz=120 * MHZ,
    clock_step_hertz=15 * MHZ,
    memory_clock_hertz=3996 * MHZ,
    memory_bytes=180 * 10**9,
    links=18,
    link_bytes_per_second=900e9,
    pcie_generation=5,
    kelvin_per_watt=0.042,
    settle_seconds=22.0,
    operating_celsius=87.0,
    slowdown_celsius=89.0,
    shutdown_celsius=95.0,
    memory_offset_celsius=26.8,
    memory_slope=0.6,
    nvlink_5=True,
    profiled=True,
    sources="limit, memory, links, PCIe: D; powers as H100 by the ratio of limits, the rest: U",
)
_MI300X = GpuModel(
    key="MI300X",
    name="AMD Instinct MI300X",
    limit_watts=750.0,
    limit_min_watts=0.0,
    free_watts=138.0,
    held_watts=165.0,
    sm_watts=430.0,
    tensor_watts=250.0,
    dram_watts=330.0,
    sm_clock_hertz=2100 * MHZ,
    free_clock_hertz=132 * MHZ,
    clock_step_hertz=1 * MHZ,
    memory_clock_hertz=1300 * MHZ,
    memory_bytes=192 * GIB,
    links=7,
    link_bytes_per_second=448e9,
    pcie_generation=5,
    kelvin_per_watt=0.056,
    settle_seconds=24.0,
    operating_celsius=95.0,
    slowdown_celsius=100.0,
    shutdown_celsius=110.0,
    memory_offset_celsius=26.8,
    memory_slope=0.6,
    profiled=False,
    nvidia=False,
    margins=False,
    sources="limit, clock, memory, links, PCIe: D; powers, thermals: U",
)

MODELS: dict[str, GpuModel] = {m.key: m for m in (_A100, _H100, _H200, _B200, _MI300X)}
