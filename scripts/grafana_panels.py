"""The panels of the dashboards for Grafana: titles, queries and units, a row for each panel."""

from collections.abc import Sequence
from dataclasses import dataclass

# Joins with the GPUs of a job and their index: each GPU once, whatever other labels its holder has.
_OF_JOB = '* on (cluster, node, uuid) group_left (index) max by (cluster, node, uuid, index) (gpuvigil_gpu_info{cluster="$cluster"} and on (cluster, node, uuid) gpuvigil_gpu_held{cluster="$cluster", holder="$holder"})'
# Joins with the index of a GPU on its node.
_NAMED = '* on (cluster, node, uuid) group_left (index) max by (cluster, node, uuid, index) (gpuvigil_gpu_info{cluster="$cluster", node="$node"})'
_HERE, _PORTS = '{cluster="$cluster", node="$node"}', '{cluster="$cluster", node=~"$node"}'
_PORT, _GPU = "{{node}} {{device}}/{{port}}", "GPU {{index}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: its queries with their legends, and the unit of its numbers."""

    title: str
    text: str
    queries: Sequence[tuple[str, str]]  # PromQL, legend
    unit: str = "short"
    kind: str = "timeseries"  # or stat, table
    width: int = 8
    nothing: str = "not measured here"  # where the query has no answer
    bad_from: Sequence[tuple[float, str]] = ()  # from which value on it has which colour
    value: str = ""  # what the column of values is called in a table; none without


def _stat(
    title: str,
    expr: str,
    text: str,
    unit: str = "short",
    bad_from: Sequence[tuple[float, str]] = (),
) -> Panel:
    return Panel(
        title=title,
        text=text,
        queries=((expr, ""),),
        unit=unit,
        kind="stat",
        width=4,
        bad_from=bad_from,
    )


def _lines(title: str, expr: str, legend: str, unit: str, text: str) -> Panel:
    return Panel(title=title, text=text, queries=((expr, legend),), unit=unit)


FLEET = (
    _stat(
        "Nodes",
        'count(gpuvigil_node_last_tick_timestamp_seconds{cluster=~"$cluster"})',
        "Nodes whose collector was scraped.",
    ),
    _stat(
        "GPUs that answer",
        'sum(gpuvigil_node_gpus_answering{cluster=~"$cluster"})',
        "GPUs that answered in the last tick.",
    ),
    _stat(
        "GPUs allocated",
        'count(max by (cluster, node, uuid) (gpuvigil_gpu_held{cluster=~"$cluster"}))',
        "GPUs that a job, a pod or a process has, as gpuvigil's analyzer knows it.",
    ),
    _stat(
        "Used of allocated",
        'avg(gpuvigil_gpu_utilization_percent{cluster=~"$cluster"} and on (cluster, node, uuid) gpuvigil_gpu_held)',
        "Mean utilisation of the GPUs that are allocated.",
        "percent",
    ),
    _stat(
        "Power",
        'sum(gpuvigil_gpu_power_watts{cluster=~"$cluster"})',
        "Drawn by all GPUs together.",
        "watt",
    ),
    _stat(
        "Incidents",
        'sum(gpuvigil_incidents{cluster=~"$cluster", held="no"}) or 0 * max(gpuvigil_incidents_not_shown)',
        "Open incidents, without those of nodes that are out of service on purpose.",
        bad_from=((1, "orange"),),
    ),
    _lines(
        "Utilisation",
        'avg by (cluster) (gpuvigil_gpu_utilization_percent{cluster=~"$cluster"})',
        "{{cluster}}",
        "percent",
        "Mean over all GPUs, the free ones included.",
    ),
    Panel(
        title="GPUs",
        text="Expected, answering and held.",
        queries=(
            ('sum(gpuvigil_node_gpus_expected{cluster=~"$cluster"})', "expected"),
            ('sum(gpuvigil_node_gpus_answering{cluster=~"$cluster"})', "answering"),
            (
                'count(max by (cluster, node, uuid) (gpuvigil_gpu_held{cluster=~"$cluster"}))',
                "held",
            ),
        ),
    ),
    _lines(
        "Power by cluster",
        'sum by (cluster) (gpuvigil_gpu_power_watts{cluster=~"$cluster"})',
        "{{cluster}}",
        "watt",
        "Drawn by the GPUs of each cluster.",
    ),
    _lines(
        "Hottest nodes",
        'topk(10, max by (cluster, node) (gpuvigil_gpu_temperature_celsius{cluster=~"$cluster"}))',
        "{{node}}",
        "celsius",
        "The hottest GPU of each of the ten hottest nodes.",
    ),
    _lines(
        "Least used held GPUs",
        'bottomk(10, avg by (cluster, node) (gpuvigil_gpu_utilization_percent{cluster=~"$cluster"} and on (cluster, node, uuid) gpuvigil_gpu_held))',
        "{{node}}",
        "percent",
        "Nodes whose held GPUs are used least.",
    ),
    Panel(
        title="Incidents by severity",
        text="What stood over time.",
        queries=(
            (
                'sum by (severity) (gpuvigil_incidents{cluster=~"$cluster", held="no"})',
                "{{severity}}",
            ),
        ),
        nothing="none",
    ),
    Panel(
        title="Open incidents",
        text="Incidents by node and fault; the link leads to gpuvigil's page of the node.",
        queries=(('gpuvigil_incidents{cluster=~"$cluster"}', ""),),
        kind="table",
        width=12,
        nothing="none",
        value="incidents",
    ),
    Panel(
        title="Xids",
        text="By GPU and code since its collector started.",
        queries=(('gpuvigil_gpu_xids_total{cluster=~"$cluster"}', ""),),
        kind="table",
        width=12,
        nothing="none",
        value="times",
    ),
    _lines(
        "Lines into the hub",
        "sum(rate(gpuvigil_hub_lines_total[2m]))",
        "lines",
        "cps",
        "Lines of telemetry that the hub committed, a second.",
    ),
    _lines(
        "Waiting in the hub",
        "gpuvigil_hub_queue_bytes",
        "{{instance}}",
        "bytes",
        "Telemetry that waits for its commit.",
    ),
    _lines(
        "Passes of the analyzer",
        "rate(gpuvigil_analyzer_pass_seconds_total[5m]) / rate(gpuvigil_analyzer_passes_total[5m])",
        "{{instance}}",
        "s",
        "How long a look at the whole fleet takes.",
    ),
    _lines(
        "Longest wait on a node",
        'topk(5, gpuvigil_node_spool_oldest_seconds{cluster=~"$cluster"})',
        "{{node}}",
        "s",
        "Age of the oldest numbers that a node has not sent yet.",
    ),
    _lines(
        "Lost on nodes",
        'sum(increase(gpuvigil_node_dropped_bodies_total{cluster=~"$cluster"}[10m]))',
        "bodies",
        "short",
        "Bodies that collectors gave up within ten minutes.",
    ),
    _lines(
        "Messages",
        "sum by (channel) (rate(gpuvigil_alerts_attempts_total[5m]))",
        "{{channel}}",
        "cps",
        "Attempts to deliver, by channel.",
    ),
)

NODE = (
    _stat("GPUs that answer", f"gpuvigil_node_gpus_answering{_HERE}", "In the last tick."),
    _stat("GPUs expected", f"gpuvigil_node_gpus_expected{_HERE}", "That this node should have."),
    _stat(
        "Age of these numbers",
        f"time() - gpuvigil_node_last_tick_timestamp_seconds{_HERE}",
        "Seconds since the last tick.",
        "s",
        ((60, "orange"), (120, "red")),  # GpuvigilCollectorStands fires from 120 s on
    ),
    _stat("Power", f"sum(gpuvigil_gpu_power_watts{_HERE})", "Drawn by its GPUs together.", "watt"),
    _stat("Load", f"gpuvigil_node_load_average{_HERE}", "Runnable tasks, mean of a minute."),
    _stat(
        "Memory left",
        f"gpuvigil_node_memory_available_bytes{_HERE}",
        "Host memory that can be had without swapping.",
        "bytes",
    ),
    _lines(
        "Utilisation",
        f"gpuvigil_gpu_utilization_percent{_HERE} {_NAMED}",
        _GPU,
        "percent",
        "Share of time in which a kernel ran.",
    ),
    _lines(
        "SM activity",
        f"gpuvigil_gpu_sm_activity_percent{_HERE} {_NAMED}",
        _GPU,
        "percent",
        "Share of the multiprocessors that had work.",
    ),
    _lines(
        "Memory used",
        f"gpuvigil_gpu_memory_used_bytes{_HERE} {_NAMED}",
        _GPU,
        "bytes",
        "Device memory in use.",
    ),
    _lines(
        "Power by GPU",
        f"gpuvigil_gpu_power_watts{_HERE} {_NAMED}",
        _GPU,
        "watt",
        "Drawn by the board.",
    ),
    _lines(
        "Temperature",
        f"gpuvigil_gpu_temperature_celsius{_HERE} {_NAMED}",
        _GPU,
        "celsius",
        "Of the core.",
    ),
    _lines(
        "Memory temperature",
        f"gpuvigil_gpu_memory_temperature_celsius{_HERE} {_NAMED}",
        _GPU,
        "celsius",
        "The hottest memory sensor.",
    ),
    _lines(
        "SM clock",
        f"gpuvigil_gpu_sm_clock_hertz{_HERE} {_NAMED}",
        _GPU,
        "hertz",
        "Clock of the multiprocessors.",
    ),
    _lines(
        "Slowed down by heat",
        f"rate(gpuvigil_gpu_hardware_thermal_slowdown_seconds_total{_HERE}[5m]) {_NAMED}",
        _GPU,
        "percentunit",
        "Share of time in which the hardware held the clocks down.",
    ),
    _lines(
        "NVLinks up",
        f"gpuvigil_gpu_nvlink_links_up{_HERE} {_NAMED}",
        _GPU,
        "short",
        "Links that are active.",
    ),
    _lines(
        "NVLink traffic",
        f"rate(gpuvigil_gpu_nvlink_transmit_bytes_total{_HERE}[2m]) {_NAMED}",
        _GPU,
        "Bps",
        "Sent over all NVLinks of the GPU.",
    ),
    _lines(
        "NVLink errors",
        f"increase(gpuvigil_gpu_nvlink_errors_total{_HERE}[30m]) {_NAMED}",
        _GPU,
        "short",
        "Replays, recoveries and CRC errors within half an hour.",
    ),
    _lines(
        "PCIe replays",
        f"increase(gpuvigil_gpu_pcie_replays_total{_HERE}[30m]) {_NAMED}",
        _GPU,
        "short",
        "Packets that had to be sent again within half an hour.",
    ),
    _lines(
        "Uncorrected memory errors",
        f"gpuvigil_gpu_ecc_uncorrected_errors_total{_HERE} {_NAMED}",
        _GPU,
        "short",
        "That ECC could not correct, as the driver counts them.",
    ),
    _lines(
        "Rows replaced",
        f"gpuvigil_gpu_remapped_rows_uncorrected{_HERE} {_NAMED}",
        _GPU,
        "short",
        "Memory rows replaced because of uncorrected errors.",
    ),
    _lines(
        "Network",
        f"rate(gpuvigil_port_receive_bytes_total{_HERE}[2m])",
        "{{device}}/{{port}}",
        "Bps",
        "Received by each port.",
    ),
    Panel(
        title="Who holds its GPUs",
        text="Jobs and pods by GPU, as gpuvigil's analyzer knows them.",
        queries=((f"gpuvigil_gpu_held{_HERE}", ""),),
        kind="table",
        width=12,
    ),
    Panel(
        title="Names",
        text="What each GPU is called.",
        queries=((f"gpuvigil_gpu_info{_HERE}", ""),),
        kind="table",
        width=12,
    ),
)

_J = '{cluster="$cluster"}'
_RANK = "{{node}} GPU {{index}}"
JOB = (
    _stat("GPUs", 'count(max by (cluster, node, uuid) (gpuvigil_gpu_held{cluster="$cluster", holder="$holder"}))', "That it holds now."),
    _stat("Nodes", 'count(count by (node) (gpuvigil_gpu_held{cluster="$cluster", holder="$holder"}))', "On which they are."),
    _stat("Utilisation now", f"avg(gpuvigil_gpu_utilization_percent{_J} {_OF_JOB})", "Mean of its GPUs.", "percent"),
    _stat("Power now", f"sum(gpuvigil_gpu_power_watts{_J} {_OF_JOB})", "Drawn by its GPUs.", "watt"),
    _stat("Memory now", f"sum(gpuvigil_gpu_memory_used_bytes{_J} {_OF_JOB})", "Device memory in use.", "bytes"),
    _stat("Idle GPUs", f"count((gpuvigil_gpu_utilization_percent{_J} {_OF_JOB}) < 1) or 0 * count(gpuvigil_gpu_utilization_percent{_J} {_OF_JOB})", "That compute nothing now.", bad_from=((1, "orange"),)),
    _lines("Utilisation", f"gpuvigil_gpu_utilization_percent{_J} {_OF_JOB}", _RANK, "percent", "Share of time in which a kernel ran."),
    _lines("SM activity", f"gpuvigil_gpu_sm_activity_percent{_J} {_OF_JOB}", _RANK, "percent", "Share of the multiprocessors that had work."),
    _lines("Tensor activity", f"gpuvigil_gpu_tensor_activity_percent{_J} {_OF_JOB}", _RANK, "percent", "Share of time in which a tensor pipe was busy."),
    _lines("Memory bandwidth", f"gpuvigil_gpu_dram_activity_percent{_J} {_OF_JOB}", _RANK, "percent", "Of what there is."),
    _lines("Memory used", f"gpuvigil_gpu_memory_used_bytes{_J} {_OF_JOB}", _RANK, "bytes", "Device memory in use."),
    _lines("Power", f"gpuvigil_gpu_power_watts{_J} {_OF_JOB}", _RANK, "watt", "Drawn by the board."),
    _lines("SM clock", f"gpuvigil_gpu_sm_clock_hertz{_J} {_OF_JOB}", _RANK, "hertz", "One that is lower than the others holds them up."),
    _lines("Temperature", f"gpuvigil_gpu_temperature_celsius{_J} {_OF_JOB}", _RANK, "celsius", "Of the core."),
    _lines("NVLink traffic", f"rate(gpuvigil_gpu_nvlink_transmit_bytes_total{_J}[2m]) {_OF_JOB}", _RANK, "Bps", "Sent over all NVLinks of the GPU."),
    _lines("Network of its nodes", 'sum by (cluster, node) (rate(gpuvigil_port_transmit_bytes_total{cluster="$cluster", role="fabric"}[2m])) and on (cluster, node) gpuvigil_gpu_held{cluster="$cluster", holder="$holder"}', "{{node}}", "Bps", "Sent by the ports of the fabric, whoever sends."),
    _lines("Energy", f"sum(increase(gpuvigil_gpu_energy_joules_total{_J}[5m]) {_OF_JOB}) / 3.6e6", "job", "kwatth", "Used by its GPUs within five minutes."),
    Panel(title="Its GPUs", text="Where it runs, for which account and in which partition.", queries=(('gpuvigil_gpu_held{cluster="$cluster", holder="$holder"}', ""),), kind="table"),
)  # fmt: skip


def _port(title: str, expr: str, unit: str, text: str) -> Panel:
    return _lines(title, f"topk(10, {expr})", _PORT, unit, f"{text} The ten ports that have most.")


def _rate(name: str) -> str:
    return f"rate(gpuvigil_port_{name}_total{_PORTS}[5m])"


NETWORK = (
    _stat("Ports up", f"sum(gpuvigil_port_up{_PORTS})", "With a link."),
    _stat("Ports down", f"count(gpuvigil_port_up{_PORTS} == 0) or 0 * count(gpuvigil_port_up{_PORTS})", "Without; also those that have no cable."),
    _stat("Received", f"sum({_rate('receive_bytes')})", "By all ports together.", "Bps"),
    _stat("Sent", f"sum({_rate('transmit_bytes')})", "By all ports together.", "Bps"),
    _stat("Slowest link", 'min(gpuvigil_port_speed_bits_per_second{cluster="$cluster", node=~"$node", role="fabric"})', "Of the fabric's, as negotiated.", "bps"),
    _stat("Links lost", f"round(sum(increase(gpuvigil_port_link_downed_total{_PORTS}[1h])))", "Within an hour.", bad_from=((1, "orange"),)),
    _port("Received by port", _rate("receive_bytes"), "Bps", "Data received."),
    _port("Sent by port", _rate("transmit_bytes"), "Bps", "Data sent."),
    _port("Waiting to send", _rate("transmit_wait_ticks"), "cps", "Ticks without credit, of InfiniBand."),
    _port("Symbol errors", _rate("symbol_errors"), "cps", "A dirty or bad cable."),
    _port("Receive errors", _rate("receive_errors"), "cps", "Packets received with an error."),
    _port("Discards", _rate("transmit_discards"), "cps", "Packets dropped before they were sent."),
    _port("Link recoveries", _rate("link_recoveries"), "cps", "The link trained anew."),
    _port("Retransmissions", _rate("retransmits"), "cps", "Packets that had to be sent again."),
    _port("Without a receive buffer", _rate("out_of_buffer"), "cps", "The host is too slow."),
    _port("Links lost by port", f"increase(gpuvigil_port_link_downed_total{_PORTS}[10m])", "short", "Times down within ten minutes."),
    _port("Module temperature", f"gpuvigil_port_module_celsius{_PORTS}", "celsius", "Of the cable's module."),
    _lines("NVLink traffic", f"topk(10, sum by (cluster, node) (rate(gpuvigil_gpu_nvlink_transmit_bytes_total{_PORTS}[5m])))", "{{node}}", "Bps", "Sent over NVLink. The ten nodes that send most."),
)  # fmt: skip

_CLUSTER = ("cluster", "label_values(gpuvigil_node_last_tick_timestamp_seconds, cluster)")
_NODE = (
    "node",
    'label_values(gpuvigil_node_last_tick_timestamp_seconds{cluster="$cluster"}, node)',
)
_HOLDER = (
    "holder",
    'label_values(gpuvigil_gpu_held{cluster="$cluster", holder!="process"}, holder)',
)

# Name, title, variables with their queries, variables with several choices, and panels.
DASHBOARDS = (
    ("fleet", "gpuvigil: fleet", (_CLUSTER,), ("cluster",), FLEET),
    ("node", "gpuvigil: node", (_CLUSTER, _NODE), (), NODE),
    ("job", "gpuvigil: job", (_CLUSTER, _HOLDER), (), JOB),
    ("network", "gpuvigil: network", (_CLUSTER, _NODE), ("node",), NETWORK),
)
