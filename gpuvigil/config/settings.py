"""Every setting with its default and its sentence; `gpuvigil.config` reads them.

Durations are numbers of seconds. The tables in `docs/settings.md` are generated from this file.
"""

from dataclasses import dataclass
from pathlib import Path

from ..faults import where
from .channels import AlertsSettings
from .integrations import (
    InfinibandSettings,
    InfluxdbSettings,
    KubernetesSettings,
    SlurmSettings,
    SwitchesSettings,
)
from .people import PeopleSettings
from .pricing import CostSettings
from .reporting import ReportSettings
from .setting import STATE
from .setting import setting as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """The hub, and how its clients reach it."""

    url: str = _setting(
        "http://127.0.0.1:8428",
        "address of the hub for collectors and services; several hubs that share their records, separated by commas: the first that answers is used",
    )
    listen: str = _setting("127.0.0.1", "address on which the hub listens")
    port: int = _setting(8428, "port on which the hub listens; 0: any free port")
    data_directory: Path = _setting(STATE / "hub", "directory of the store and the records")
    records_url: str = _setting(
        "", "PostgreSQL for the records, as postgresql://...; empty keeps them in a SQLite file"
    )
    records_url_file: Path | None = _setting(
        None, "file with records_url, which contains a password"
    )
    ca_file: Path | None = _setting(
        None, "CA of the hub's certificate, in PEM; empty: the system's CAs"
    )
    client_certificate_file: Path | None = _setting(
        None, "client certificate for a hub that requires one, in PEM"
    )
    client_key_file: Path | None = _setting(None, "its key, unless the same file holds it")
    tls_certificate_file: Path | None = _setting(
        None, "the hub's certificate with its chain, in PEM; the hub then serves only HTTPS"
    )
    tls_key_file: Path | None = _setting(None, "its key, unless the same file holds it")
    tls_client_ca_file: Path | None = _setting(
        None, "CA of clients, in PEM; clients without its certificate are refused (mutual TLS)"
    )
    connections_count: int = _setting(
        100_000,
        "maximum connections to the hub, within the system's limit of open files; more get 503",
    )
    bucket: str = _setting("gpuvigil", "the one bucket of the InfluxDB-compatible write path")
    collector_token_file: Path | None = _setting(
        None,
        "file with the token that may write telemetry, events, allocations and inventory of any node",
    )
    service_token_file: Path | None = _setting(None, "file with the token that may do everything")
    scheduler_token_file: Path | None = _setting(
        None,
        "file with the token that may write what a scheduler reports about jobs and nodes of any cluster; empty: the hub accepts only issued tokens, and `gpuvigil slurm` and `kubernetes` look for `scheduler-token` beside their other token",
    )
    tokens_file: Path | None = _setting(
        None,
        "tokens issued by an older gpuvigil, imported into the records at start; empty: tokens.json in data_directory",
    )
    commit_seconds: float = _setting(
        1.0,
        "how often telemetry is committed; events are committed at once, and backlogs up to ten times as often",
    )
    queue_bytes: int = _setting(
        64 * 1024 * 1024, "maximum telemetry waiting for its commit; more gets 429"
    )
    body_bytes: int = _setting(16 * 1024 * 1024, "maximum size of a request body, uncompressed")
    body_lines_count: int = _setting(50_000, "maximum lines of a request body; more gets 413")
    series_per_node_count: int = _setting(
        10_000,
        "maximum series (a measurement with its tags) of one node in half a day; more are refused",
    )
    nodes_count: int = _setting(20_000, "maximum nodes that write in half a day; more are refused")
    clock_wrong_seconds: float = _setting(
        10.0,
        "a node's clock that is off by less is corrected; if it is off by more, arrival times are used instead",
    )
    hot_hours: float = _setting(
        2.0, "recent telemetry that may still change; whole hours before that are sealed"
    )
    telemetry_days: float = _setting(
        14.0, "how long samples are kept; a sealed hour or day is deleted once all of it is older"
    )
    rollup_days: float = _setting(
        400.0, "how long ten-minute roll-ups are kept, even after their samples are deleted"
    )
    store_bytes: int = _setting(
        64 * 1024**3, "maximum telemetry on disk; beyond it the oldest is deleted and counted"
    )
    records_days: float = _setting(
        400.0,
        "how long events, usage, ended allocations, resolved incidents and inventories are kept",
    )
    memory_limit_bytes: int = _setting(1024 * 1024 * 1024, "memory limit of the embedded store")
    threads: int = _setting(2, "number of threads of the embedded store")


# The kinds of store for telemetry; `gpuvigil.store.configured` knows each.
STORES = ("hub", "victoriametrics", "influxdb", "prometheus")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where telemetry is kept; records stay on the hub."""

    kind: str = _setting("hub", "hub, victoriametrics, influxdb, or prometheus, which is only read")
    url: str = _setting(
        "", "address for reading; for a VictoriaMetrics cluster, the tenant at vmselect"
    )
    write_url: str = _setting(
        "", "address for writing, if different; for a cluster, the tenant at vminsert"
    )
    bucket: str = _setting("gpuvigil", "bucket or database; in VictoriaMetrics the label `db`")
    organization: str = _setting("", "organization, which InfluxDB 2 needs")
    token_file: Path | None = _setting(None, "file with the server's token")
    user: str = _setting("", "user name, if the server needs one")
    password_file: Path | None = _setting(None, "file with the password")
    ca_file: Path | None = _setting(None, "CA certificates to trust instead of the system's")
    cluster: str = _setting(
        "prometheus", "cluster of series in Prometheus that have no label `cluster`"
    )
    span_hours: float = _setting(
        24.0,
        "longest time range of one query to InfluxDB; InfluxDB 3 Core refuses more than 72 h",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """The agent on a node."""

    cluster: str = _setting("local", "name of the cluster this node belongs to")
    node: str = _setting("", "name of this node; empty: the host name")
    rack: str = _setting("", "name of the rack, for the map; empty: nodes are grouped by name")
    tick_seconds: float = _setting(10.0, "how often sensors are read and sent")
    slow_tick_seconds: float = _setting(
        60.0,
        "how often slowly changing sensors of a GPU are read, and refused calls tried again",
    )
    driver_timeout_seconds: float = _setting(
        2.0, "timeout of a driver call; a driver that takes longer does not answer"
    )
    reader_patience_seconds: float = _setting(
        30.0, "a reader process is replaced if none of its calls returns for this long"
    )
    port_poll_seconds: float = _setting(1.0, "how often the state of network ports is checked")
    gpus: bool = _setting(True, "read NVIDIA GPUs")
    sysfs_root: Path = _setting(Path("/sys"), "where sysfs is mounted")
    proc_root: Path = _setting(Path("/proc"), "where procfs is mounted")
    kernel_log: Path = _setting(
        Path("/dev/kmsg"), "read the kernel log: Xids, PCIe errors, OOM kills, machine checks"
    )
    journalctl: str = _setting(
        "journalctl",
        "program that reads the journal if the kernel log is not readable; empty: none",
    )
    spool_directory: Path = _setting(
        STATE / "spool", "where data waits while the hub is unreachable"
    )
    spool_bytes: int = _setting(
        256 * 1024 * 1024, "maximum bytes that wait; beyond it the oldest are dropped and counted"
    )
    spool_hours: float = _setting(
        168.0,
        "data that has waited for longer is dropped and counted; data that waited less arrives late",
    )
    jobs_directory: Path = _setting(
        Path("/run/gpuvigil-jobs"),
        "where Slurm's prolog and epilog write a file per job (`packaging/slurm/gpuvigil-job`)",
    )
    steps_directory: Path = _setting(
        Path("/run/gpuvigil-steps"),
        "where programs report their steps, a file per process (`packaging/steps`), if the directory exists",
    )
    log_command: tuple[str, ...] = _setting(
        (),
        "program and arguments to run once for each critical hardware fault, to save logs before a reset, such as `nvidia-bug-report.sh --output-file {file}`; empty: none",
    )
    log_directory: Path = _setting(
        STATE / "logs", "where `{file}`, or else the program's output, is kept; the last ten"
    )
    log_seconds: float = _setting(120.0, "the program's time limit")
    machine_seconds: float = _setting(
        60.0,
        "how often power supplies, fans, memory errors and mounts are checked, in a child process; 0: never",
    )
    lldpcli: str = _setting(
        "lldpcli",
        "program that asks lldpd for the switch at each port, every `machine_seconds` (docs/topology.md); empty: none",
    )
    watched_mounts: tuple[str, ...] = _setting(
        (),
        "mount points to watch, and to report if they are not mounted; empty: all network file systems and local disks",
    )
    crash_directories: tuple[str, ...] = _setting(
        ("/var/crash", "/var/lib/systemd/pstore"),
        "directories to which kdump and systemd-pstore write kernel crash dumps; empty: not checked",
    )
    kubelet_socket: Path | None = _setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "the kubelet's socket, which tells which pod has which GPU, if it exists",
    )
    inference_urls: tuple[str, ...] = _setting(
        (),
        'metrics pages of inference servers on this node (vLLM, Triton), read each tick, such as `["http://127.0.0.1:8000/metrics"]`',
    )
    inference_anywhere: bool = _setting(
        False, "allow pages that are not on a loopback address, such as a pod's"
    )
    nccl_ras: tuple[str, ...] = _setting(
        (),
        'Slurm partitions whose stalled jobs are asked through NCCL\'s RAS where their ranks are, such as `["train"]`; `["*"]`: all jobs and pods; empty: none. Asking has crashed jobs: read docs/nccl.md first',
    )
    nccl_ras_versions: tuple[str, ...] = _setting(
        (),
        'NCCL versions that may be asked because you have tried them, such as `["2.30.7"]`; versions known to crash are never asked',
    )
    nccl_ras_port: int = _setting(28028, "port of NCCL's RAS, as in `NCCL_RAS_ADDR`")
    flight_recorder_directories: tuple[Path, ...] = _setting(
        (),
        "directories of PyTorch's Flight Recorder dumps (`TORCH_FR_DUMP_TEMP_FILE`), read once a job has stalled; only files of the job's user (docs/nccl.md)",
    )
    nccl_inspector_directories: tuple[Path, ...] = _setting(
        (),
        "directories to which NCCL Inspector writes (`NCCL_INSPECTOR_DUMP_DIR`), to find the rank that the others wait for (docs/nccl.md)",
    )
    runtime_directory: Path = _setting(
        Path("/run/gpuvigil"),
        "where users of the node can read its hardware and whether the driver is released, and where programs send their steps (docs/steps.md), if the directory exists",
    )
    metrics_listen: str = _setting("127.0.0.1", "address of /metrics")
    metrics_port: int = _setting(9431, "port of /metrics; 0: any free port; -1: off")
    metrics_links: bool = _setting(
        False, "/metrics shows each NVLink; otherwise only each GPU's totals and worst link"
    )
    metrics_details: bool = _setting(True, "/metrics shows the cost of each driver call")
    metrics_dcgm: bool = _setting(
        False, "/metrics also shows GPUs with dcgm-exporter's names, units and labels"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """The simulated cluster; marked as simulated wherever it shows."""

    nodes: int = _setting(0, "number of nodes to simulate; 0: none")
    gpus_per_node: int = _setting(8, "GPUs per simulated node")
    tick_seconds: float = _setting(1.0, "how often simulated sensors are read and sent")
    seed: int = _setting(1, "the same seed gives the same cluster")
    fleet: bool = _setting(
        False,
        "simulate the livelier cluster of docs/fleet.md, whose jobs come and go and whose faults happen by themselves; needs numpy",
    )
    fault_rate: float = _setting(
        2000.0, "random faults of that cluster per 1,000 node-days; real clusters have 2 to 7"
    )
    faults_file: Path = _setting(
        STATE / "simulator" / "faults.json",
        "file that `gpuvigil inject` writes and the simulated sensors read",
    )
    spool_directory: Path = _setting(
        STATE / "simulator" / "spool", "where simulated data waits while the hub is unreachable"
    )
    metrics_listen: str = _setting("127.0.0.1", "address of the /metrics of all simulated nodes")
    metrics_port: int = _setting(-1, "its port; 0: any free port; -1: off")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings:
    """The analyzer's limits: when metrics become findings, and findings incidents."""

    tick_seconds: float = _setting(
        10.0, "how often the analyzer makes a pass over the cluster; events start one at once"
    )
    window_seconds: float = _setting(60.0, "span of telemetry that a pass reads")
    steady_seconds: float = _setting(
        600.0, "span over which temperature, clocks and power of GPUs are compared with their peers"
    )
    trend_seconds: float = _setting(1800.0, "span over which rare errors are counted")
    idle_after_seconds: float = _setting(1800.0, "an allocated GPU at 0 % for this long is idle")
    idle_below_percent: float = _setting(1.0, "utilisation below this counts as computing nothing")
    underused_after_seconds: float = _setting(
        7200.0,
        "an allocated GPU of which little is used for this long is under-used; the start of a job does not count",
    )
    silent_after_seconds: float = _setting(
        30.0,
        "a node without data for this long, and for at least three of its ticks, counts as late",
    )
    silent_verdict_seconds: float = _setting(
        540.0,
        "a silent node becomes an incident after this long, unless its scheduler or its jobs show earlier"
        " that it is down; until then it is late",
    )
    port_down_seconds: float = _setting(
        30.0,
        "how long a port must be down before it is an incident: 5 s if a job stopped with it, six times this if no readings have come since, ten times if these are late",
    )
    port_flap_count: int = _setting(
        3, "how many times a port must go down within the flap window to be flapping"
    )
    port_flap_window_seconds: float = _setting(600.0, "flap window for the port's own counter")
    port_flap_events_seconds: float = _setting(3600.0, "flap window for events from the collector")
    passing_xid_seconds: float = _setting(
        600.0, "how long an Xid that needs no reset is kept open after it was last seen"
    )
    xid_overrides: tuple[str, ...] = _setting(
        (),
        "your own severities of Xids, such as `63=warning` or `43=ignore`; others are in the table of faults",
    )
    sxid_overrides: tuple[str, ...] = _setting(
        (),
        "the same for SXids, which NVSwitches report, such as `12028=critical` or `10004=ignore`",
    )
    health_check_users: tuple[str, ...] = _setting(
        (),
        "Slurm users whose drains come from a health check; such drains do not hold messages back",
    )
    health_check_reasons: tuple[str, ...] = _setting(
        (),
        "how your health checks' drain reasons begin, in any case",
    )
    doubted_hold_hours: float = _setting(
        24.0,
        "how long at most messages about a critical are held back on a node that a person or a health check drained",
    )
    clear_seconds: float = _setting(
        30.0,
        "an incident is resolved once its cause has been gone for this long; a repair that is seen resolves it at once",
    )
    late_after_seconds: float = _setting(
        120.0, "events that arrive later than this are recorded, but nobody is paged"
    )
    metrics_listen: str = _setting("127.0.0.1", "address of the /metrics of the analyzer")
    metrics_port: int = _setting(-1, "its port; 0: any free port; -1: off")
    metrics_holders: bool = _setting(
        True,
        "/metrics also shows which job or pod holds each GPU (a new series for each), but no users",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """The dashboard."""

    listen: str = _setting("127.0.0.1", "address on which the dashboard listens")
    port: int = _setting(8501, "port on which the dashboard listens; 0: any free port")
    connections_count: int = _setting(
        1000,
        "maximum connections to the dashboard, within the system's limit of open files; an open page has one, and a few more while it loads; more get 503",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "addresses and networks of reverse proxies, such as `10.0.0.5` or `10.0.0.0/24`; X-Forwarded-For and X-Forwarded-Proto count only from them",
    )
    refresh_seconds: float = _setting(2.0, "how often an open page refreshes")
    secrets_directory: Path = _setting(
        STATE / "secrets", "directory of the sign-in secret and the one-time tokens"
    )
    session_hours: float = _setting(168.0, "how long a sign-in lasts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsSettings:
    """`gpuvigil act`, beside Slurm's commands or a Kubernetes API; the cluster's name is the collector's."""

    enabled: bool = _setting(False, "allow actions")
    of: str = _setting(
        "slurm", "the scheduler whose nodes it changes: slurm or kubernetes (see `[kubernetes]`)"
    )
    dry_run: bool = _setting(True, "only log what would be done")
    faults: tuple[str, ...] = _setting(
        tuple(sorted(where(lambda row: row.drains))),
        "faults (docs/faults.md) for which a node is drained; inferred ones are refused",
    )
    after_seconds: float = _setting(
        120.0, "how long an incident must be open before the node is drained"
    )
    most_percent: float = _setting(
        5.0,
        "maximum share of the cluster's nodes that may be out of service at once, for whatever reason; `gpuvigil check --drain` and Slurm's prolog respect it too",
    )
    resume: bool = _setting(
        False,
        "resume a node that gpuvigil drained, once its incident is resolved and somebody has accepted the node since (`gpuvigil node accept`)",
    )
    end_idle: bool = _setting(
        False,
        "end Slurm's idle jobs whose policy (`alerts.idle`) has `end_minutes`, after its notices",
    )
    ends_per_hour: int = _setting(4, "maximum jobs ended within any hour")
    ends_percent: float = _setting(
        2.0, "maximum share of the cluster's GPUs taken from idle jobs within any hour"
    )
    interval_seconds: float = _setting(30.0, "how often it checks")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySettings:
    """The switch of each port, where LLDP does not tell it."""

    files: tuple[Path, ...] = _setting(
        (),
        "files with the fabric's topology, for the nodes that they name: Slurm's topology.conf or topology.yaml, ibnetdiscover's output, `kubectl get nodes -o json`, topograph's JSON, or TOML (docs/topology.md)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The services' own log."""

    level: str = _setting("info", "debug, info, warning or error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, with a section per service."""

    hub: HubSettings = _setting(HubSettings(), "the hub")
    store: StoreSettings = _setting(StoreSettings(), "where telemetry is kept")
    collector: CollectorSettings = _setting(CollectorSettings(), "the collector")
    slurm: SlurmSettings = _setting(SlurmSettings(), "what Slurm's controller is asked")
    kubernetes: KubernetesSettings = _setting(
        KubernetesSettings(), "the watcher of a Kubernetes cluster"
    )
    infiniband: InfinibandSettings = _setting(
        InfinibandSettings(), "the reader of an InfiniBand fabric"
    )
    switches: SwitchesSettings = _setting(
        SwitchesSettings(), "the reader of switches that the site's Prometheus knows"
    )
    influxdb: InfluxdbSettings = _setting(
        InfluxdbSettings(), "what is written to a site's InfluxDB"
    )
    simulator: SimulatorSettings = _setting(SimulatorSettings(), "the simulated cluster")
    analyzer: AnalyzerSettings = _setting(AnalyzerSettings(), "the analyzer")
    alerts: AlertsSettings = _setting(AlertsSettings(), "alerts")
    dashboard: DashboardSettings = _setting(DashboardSettings(), "the dashboard")
    people: PeopleSettings = _setting(PeopleSettings(), "how people sign in to the dashboard")
    actions: ActionsSettings = _setting(ActionsSettings(), "what gpuvigil does itself: nothing")
    cost: CostSettings = _setting(CostSettings(), "what GPU-hours and energy cost")
    reports: tuple[ReportSettings, ...] = _setting((ReportSettings(),), "scheduled reports")
    topology: TopologySettings = _setting(TopologySettings(), "how the fabric is wired")
    log: LogSettings = _setting(LogSettings(), "the log")
