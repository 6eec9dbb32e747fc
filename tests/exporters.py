"""A server with what dcgm-exporter and node_exporter say about two nodes.

The text is shaped as dcgm-exporter 3.3 writes it (its README's example, and etc/default-counters.csv) and as
node_exporter 1.5 does; numbers are those of an H100.
"""

from collections.abc import Mapping

from tests.text_pages import TextPages

NODES = ("gpu-a", "gpu-b")
GPUS = 2


def uuid(node: str, gpu: int) -> str:
    return f"GPU-{node}-{gpu}"


class Exporters(TextPages):
    """A server with `/dcgm/NODE` and `/node/NODE`; a context manager. Tests may change `utilization`."""

    def __init__(self) -> None:
        self.utilization: dict[str, int] = {uuid(n, g): 98 for n in NODES for g in range(GPUS)}
        self.gone: set[str] = set()  # GPUs that are no longer reported
        self.labels: dict[str, dict[str, str]] = {}  # further labels of a GPU, by its UUID
        self.start()

    @property
    def targets(self) -> Mapping[str, Mapping[str, str]]:
        """Scrape paths with their labels: the first node has both exporters, the other only that of its GPUs."""
        return {
            "/dcgm/gpu-a": {"instance": "10.0.0.1:9400", "cluster": "h100"},
            "/dcgm/gpu-b": {"instance": "10.0.0.2:9400", "cluster": "h100"},
            "/node/gpu-a": {"instance": "gpu-a:9100", "cluster": "h100"},
        }

    def text(self, path: str) -> str:
        _, exporter, node = path.split("/")
        return self._dcgm(node) if exporter == "dcgm" else _NODE_EXPORTER

    def _dcgm(self, node: str) -> str:
        lines = ["# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).", "# TYPE x gauge"]
        for gpu in range(GPUS):
            if uuid(node, gpu) in self.gone:
                continue
            labels = (
                f'gpu="{gpu}",UUID="{uuid(node, gpu)}",pci_bus_id="00000000:1{gpu}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",'
                'DCGM_FI_DRIVER_VERSION="535.129.03"'
            )
            more = self.labels.get(uuid(node, gpu), {})
            labels += "".join(f',{name}="{value}"' for name, value in more.items())
            values = {
                "DCGM_FI_DEV_GPU_UTIL": self.utilization[uuid(node, gpu)],
                "DCGM_FI_DEV_GPU_TEMP": 41 + gpu,
                "DCGM_FI_DEV_SM_CLOCK": 1980,
                "DCGM_FI_DEV_POWER_USAGE": 652.25,
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 2_000_000,
                "DCGM_FI_DEV_MEM_COPY_UTIL": 40,
                "DCGM_FI_DEV_FB_USED": 70_000,
                "DCGM_FI_DEV_FB_FREE": 11_000,
                "DCGM_FI_DEV_XID_ERRORS": 0,
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.875,
            }
            lines += [f"{name}{{{labels}}} {value}" for name, value in values.items()]
        # A slice of the first GPU, as it is reported where MIG is on.
        sliced = f'gpu="0",UUID="{uuid(node, 0)}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
        lines.append(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{sliced},Hostname="{node}"}} 0.25')
        return "\n".join(lines) + "\n"


_NODE_EXPORTER = """node_load1 3.5
node_memory_MemAvailable_bytes 1.0e+12
node_memory_MemTotal_bytes 2.164663517184e+12
node_network_up{device="eth0"} 1
node_network_up{device="lo"} 0
node_network_up{device="veth12ab"} 1
node_network_speed_bytes{device="eth0"} 1.25e+09
node_network_receive_bytes_total{device="eth0"} 5.0e+09
node_network_carrier_down_changes_total{device="eth0"} 2
node_infiniband_state_id{device="mlx5_0",port="1"} 4
node_infiniband_state_id{device="mlx5_1",port="1"} 1
node_infiniband_physical_state_id{device="mlx5_0",port="1"} 5
node_infiniband_physical_state_id{device="mlx5_1",port="1"} 2
node_infiniband_rate_bytes_per_second{device="mlx5_0",port="1"} 5.0e+10
node_infiniband_link_downed_total{device="mlx5_0",port="1"} 3
node_infiniband_port_transmit_wait_total{device="mlx5_0",port="1"} 4.2949e+07
"""
