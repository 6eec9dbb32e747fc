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
        "where collectors and services reach the hub; of several that share their records, separated"
        " by commas, the first that answers is taken",
    )
    listen: str = _setting("127.0.0.1", "address the hub listens on")
    port: int = _setting(8428, "port the hub listens on; 0 takes a free one")
    data_directory: Path = _setting(STATE / "hub", "where the store and the records live")
    records_url: str = _setting(
        "", "PostgreSQL for the records, as postgresql://...; empty keeps them in a SQLite file"
    )
    records_url_file: Path | None = _setting(
        None, "file that holds records_url, since that holds a password"
    )
    ca_file: Path | None = _setting(
        None, "CA that has signed the hub's certificate, in PEM; empty believes the system's CAs"
    )
    client_certificate_file: Path | None = _setting(
        None, "certificate to show to a hub that asks for one, in PEM"
    )
    client_key_file: Path | None = _setting(None, "its key, unless the same file holds it")
    tls_certificate_file: Path | None = _setting(
        None, "the hub's own certificate with its chain, in PEM: it then speaks HTTPS alone"
    )
    tls_key_file: Path | None = _setting(None, "its key, unless the same file holds it")
    tls_client_ca_file: Path | None = _setting(
        None, "CA of clients, in PEM: who shows no certificate of it is not heard (mutual TLS)"
    )
    connections_count: int = _setting(
        100_000, "most connections to the hub, as far as the system grants files; more get 503"
    )
    bucket: str = _setting("gpuvigil", "the one bucket of the InfluxDB-compatible write path")
    collector_token_file: Path | None = _setting(
        None, "token that may write telemetry, events, allocations, inventory of any node"
    )
    service_token_file: Path | None = _setting(None, "token that may do everything")
    scheduler_token_file: Path | None = _setting(
        None,
        "token that may write what a scheduler says of any cluster's jobs and nodes; empty: the hub"
        " takes issued ones alone, and `gpuvigil slurm` and `kubernetes` look for `scheduler-token`"
        " beside their other token",
    )
    tokens_file: Path | None = _setting(
        None,
        "tokens that an older gpuvigil issued, taken into the records at a start; empty: tokens.json"
        " in data_directory",
    )
    commit_seconds: float = _setting(
        1.0,
        "telemetry is committed this often; events at once, and what collectors kept up to ten times as often",
    )
    queue_bytes: int = _setting(
        64 * 1024 * 1024, "telemetry waiting for its commit; more is answered 429"
    )
    body_bytes: int = _setting(16 * 1024 * 1024, "largest body, inflated")
    body_lines_count: int = _setting(50_000, "most lines of a body; more are answered 413")
    series_per_node_count: int = _setting(
        10_000, "series (a measurement with its tags) of one node in half a day; more are refused"
    )
    nodes_count: int = _setting(20_000, "nodes that write in half a day; more are refused")
    clock_wrong_seconds: float = _setting(
        10.0,
        "a node's clock that is off by less is put right; by more, its lines count from their arrival",
    )
    hot_hours: float = _setting(
        2.0, "telemetry of the last hours is kept ready for change; whole hours before are sealed"
    )
    telemetry_days: float = _setting(
        14.0, "samples older than this are deleted, a sealed hour or day once all of it is"
    )
    rollup_days: float = _setting(
        400.0, "roll-ups of ten minutes are kept this long, also where the samples are deleted"
    )
    store_bytes: int = _setting(
        64 * 1024**3, "most bytes of telemetry on disk; beyond, the oldest is dropped and counted"
    )
    records_days: float = _setting(
        400.0,
        "events, usage, ended allocations, resolved incidents and what nodes last told of themselves"
        " are forgotten when older than this",
    )
    memory_limit_bytes: int = _setting(1024 * 1024 * 1024, "memory that the embedded store may use")
    threads: int = _setting(2, "threads of the embedded store")


# The kinds of store for telemetry; `gpuvigil.store.configured` knows each.
STORES = ("hub", "victoriametrics", "influxdb", "prometheus")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where telemetry is kept; records stay on the hub."""

    kind: str = _setting("hub", "hub, victoriametrics, influxdb, or prometheus, which is only read")
    url: str = _setting(
        "", "where it is read; of a VictoriaMetrics cluster, the tenant at vmselect"
    )
    write_url: str = _setting(
        "", "where it is written, if elsewhere; of a cluster, the tenant at vminsert"
    )
    bucket: str = _setting("gpuvigil", "bucket or database; in VictoriaMetrics the label `db`")
    organization: str = _setting("", "organization, where InfluxDB 2 asks for one")
    token_file: Path | None = _setting(None, "file that holds the server's token")
    user: str = _setting("", "user name, where the server asks for one and a password")
    password_file: Path | None = _setting(None, "file that holds the password")
    ca_file: Path | None = _setting(None, "certificates to trust instead of the system's")
    cluster: str = _setting(
        "prometheus", "cluster of what Prometheus has without a label `cluster`"
    )
    span_hours: float = _setting(
        24.0,
        "longest span that an InfluxDB is asked for at once; InfluxDB 3 Core refuses over 72 h",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """The agent on a node."""

    cluster: str = _setting("local", "name of the cluster this node belongs to")
    node: str = _setting("", "name of this node; empty takes the host name")
    rack: str = _setting("", "name of the rack, for the map; empty groups nodes by name")
    tick_seconds: float = _setting(10.0, "numbers are read and sent this often")
    slow_tick_seconds: float = _setting(
        60.0,
        "numbers of a GPU that change rarely are read this often, and refused calls tried again",
    )
    driver_timeout_seconds: float = _setting(
        2.0, "a driver call that takes longer counts as not answering"
    )
    reader_patience_seconds: float = _setting(
        30.0, "a reader none of whose calls return for this long is replaced"
    )
    port_poll_seconds: float = _setting(
        1.0, "network ports are looked at this often for changes of state"
    )
    gpus: bool = _setting(True, "read NVIDIA GPUs")
    sysfs_root: Path = _setting(Path("/sys"), "where sysfs is mounted")
    proc_root: Path = _setting(Path("/proc"), "where procfs is mounted")
    kernel_log: Path = _setting(
        Path("/dev/kmsg"), "the kernel log: Xids, PCIe errors, OOM kills, machine checks"
    )
    journalctl: str = _setting(
        "journalctl",
        "program that reads the journal where the kernel log is closed; empty: none",
    )
    spool_directory: Path = _setting(STATE / "spool", "where bodies wait while the hub is away")
    spool_bytes: int = _setting(
        256 * 1024 * 1024, "most bytes that may wait; the oldest are dropped and counted"
    )
    spool_hours: float = _setting(
        168.0,
        "what has waited for longer is dropped and counted; within it, what an outage left arrives late",
    )
    jobs_directory: Path = _setting(
        Path("/run/gpuvigil-jobs"),
        "where Slurm's prolog and epilog leave a file for each job (`packaging/slurm/gpuvigil-job`)",
    )
    steps_directory: Path = _setting(
        Path("/run/gpuvigil-steps"),
        "where programs say how far they are, a file per process (`packaging/steps`), if there is such a directory",
    )
    log_command: tuple[str, ...] = _setting(
        (),
        "program and arguments, run once for each hardware critical before anybody resets, as"
        " `nvidia-bug-report.sh --output-file {file}`; empty runs nothing",
    )
    log_directory: Path = _setting(
        STATE / "logs", "where `{file}`, or else what the program prints, is kept; the last ten"
    )
    log_seconds: float = _setting(120.0, "the program is ended after this long")
    machine_seconds: float = _setting(
        60.0,
        "power supplies, fans, memory errors and mounts are looked at this often, by a child; 0: never",
    )
    lldpcli: str = _setting(
        "lldpcli",
        "program that asks lldpd for the switch at each port's other end, with each look at the"
        " machine (docs/topology.md); empty: none",
    )
    watched_mounts: tuple[str, ...] = _setting(
        (),
        "mount points that are watched, which also says that they are to be mounted; empty takes"
        " network file systems and local disks",
    )
    crash_directories: tuple[str, ...] = _setting(
        ("/var/crash", "/var/lib/systemd/pstore"),
        "directories that kdump and systemd-pstore write dumps of a crashed kernel to; empty: nobody looks",
    )
    kubelet_socket: Path | None = _setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "where the kubelet says which pod has which GPU, if there is one",
    )
    inference_urls: tuple[str, ...] = _setting(
        (),
        "pages of inference servers on this node (vLLM, Triton), each tick, as"
        ' `["http://127.0.0.1:8000/metrics"]`',
    )
    inference_anywhere: bool = _setting(
        False, "such a page may be elsewhere than on a loopback address, as that of a pod"
    )
    nccl_ras: tuple[str, ...] = _setting(
        (),
        "Slurm partitions whose jobs' NCCL is asked where its ranks stand once a job has stalled, as"
        ' `["train"]`; `["*"]` for all jobs and pods; empty: none. Asking has crashed jobs: read docs/nccl.md first',
    )
    nccl_ras_versions: tuple[str, ...] = _setting(
        (),
        'versions of NCCL that may be asked, as this site has tried them: `["2.30.7"]`; no other is,'
        " nor one whose crashes when asked are known",
    )
    nccl_ras_port: int = _setting(28028, "port of NCCL's RAS, as in `NCCL_RAS_ADDR`")
    flight_recorder_directories: tuple[Path, ...] = _setting(
        (),
        "where PyTorch's Flight Recorder leaves its dumps (`TORCH_FR_DUMP_TEMP_FILE`); read once a job has"
        " stalled, files of its own user only (docs/nccl.md)",
    )
    nccl_inspector_directories: tuple[Path, ...] = _setting(
        (),
        "where NCCL Inspector writes (`NCCL_INSPECTOR_DUMP_DIR`): which rank the others wait for"
        " (docs/nccl.md)",
    )
    runtime_directory: Path = _setting(
        Path("/run/gpuvigil"),
        "where users of the node may read which hardware it has and whether the driver is"
        " released, and programs may send their steps (docs/steps.md), if there is such a directory",
    )
    metrics_listen: str = _setting("127.0.0.1", "address of /metrics")
    metrics_port: int = _setting(9431, "port of /metrics; 0 takes a free one, -1 serves none")
    metrics_links: bool = _setting(
        False, "/metrics shows each NVLink; a GPU's sums and its worst link are there without"
    )
    metrics_details: bool = _setting(True, "/metrics shows what each driver call costs")
    metrics_dcgm: bool = _setting(
        False, "/metrics shows GPUs also in the names, units and labels of dcgm-exporter"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """The simulated cluster; marked as simulated wherever it shows."""

    nodes: int = _setting(0, "nodes to simulate; 0 simulates none")
    gpus_per_node: int = _setting(8, "GPUs of a simulated node")
    tick_seconds: float = _setting(1.0, "simulated numbers are read and sent this often")
    seed: int = _setting(1, "the same seed gives the same cluster")
    fleet: bool = _setting(
        False, "play the fleet of docs/fleet.md, with jobs, life and faults of its own; needs numpy"
    )
    fault_rate: float = _setting(
        2000.0, "random faults of that fleet per 1,000 node-days; real ones are 2 to 7"
    )
    faults_file: Path = _setting(
        STATE / "simulator" / "faults.json",
        "what `gpuvigil inject` writes and the simulated sensors read",
    )
    spool_directory: Path = _setting(
        STATE / "simulator" / "spool", "where simulated bodies wait while the hub is away"
    )
    metrics_listen: str = _setting("127.0.0.1", "address of the /metrics of all simulated nodes")
    metrics_port: int = _setting(-1, "its port; 0 takes a free one, -1 serves none")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings:
    """The analyzer's limits: when metrics become findings, and findings incidents."""

    tick_seconds: float = _setting(
        10.0, "a pass over the fleet is made this often; events wake it at once"
    )
    window_seconds: float = _setting(60.0, "span of telemetry a pass looks at")
    steady_seconds: float = _setting(
        600.0, "span over which heat, clocks and power of GPUs are compared with their peers"
    )
    trend_seconds: float = _setting(1800.0, "span over which rare errors are counted")
    idle_after_seconds: float = _setting(1800.0, "an allocated GPU at 0 % for this long is idle")
    idle_below_percent: float = _setting(1.0, "utilisation under this counts as nothing computed")
    underused_after_seconds: float = _setting(
        7200.0,
        "a GPU of which little is used for this long is under-used; a job's start counts for nothing",
    )
    silent_after_seconds: float = _setting(
        30.0, "a node without data for this long stopped reporting; at least three of its ticks"
    )
    silent_verdict_seconds: float = _setting(
        540.0,
        "a silent node becomes an incident after this long, unless its scheduler or its jobs show earlier"
        " that it is down; until then it is late",
    )
    port_down_seconds: float = _setting(
        30.0,
        "a port that went down is down for this long before it is an incident, or 5 s where a job stopped"
        " with it; six times as long where no numbers of it have come since, ten times where these are late",
    )
    port_flap_count: int = _setting(
        3, "times down within the flap window that make a flapping port"
    )
    port_flap_window_seconds: float = _setting(
        600.0, "span in which a flapping port is counted by its own counter"
    )
    port_flap_events_seconds: float = _setting(
        3600.0, "span in which it is counted by what its collector told"
    )
    passing_xid_seconds: float = _setting(
        600.0, "an Xid that asks for no reset stands this long after it was last seen"
    )
    xid_overrides: tuple[str, ...] = _setting(
        (), "severities of the site's own, as `63=warning` or `43=ignore`; the table says the rest"
    )
    sxid_overrides: tuple[str, ...] = _setting(
        (), "the same of SXids, which NVSwitches report, as `12028=critical` or `10004=ignore`"
    )
    health_check_users: tuple[str, ...] = _setting(
        (), "users (as Slurm names them) whose drains are a health check's, and hold no page back"
    )
    health_check_reasons: tuple[str, ...] = _setting(
        (),
        "beginnings of reasons, in any case, with which health checks of the site take nodes out",
    )
    doubted_hold_hours: float = _setting(
        24.0,
        "a critical is held this long at most on a node that a person or a health check took out",
    )
    clear_seconds: float = _setting(
        30.0,
        "an incident whose cause is gone for this long is resolved; a seen cure resolves at once",
    )
    late_after_seconds: float = _setting(
        120.0, "events that arrive later than this are recorded and page nobody"
    )
    metrics_listen: str = _setting("127.0.0.1", "address of the /metrics of the analyzer")
    metrics_port: int = _setting(-1, "its port; 0 takes a free one, -1 serves none")
    metrics_holders: bool = _setting(
        True, "it shows which job or pod holds each GPU: a new series for each of them, and no user"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """The dashboard."""

    listen: str = _setting("127.0.0.1", "address the pages are served on")
    port: int = _setting(8501, "port the pages are served on; 0 takes a free one")
    connections_count: int = _setting(
        1000,
        "most connections to the dashboard, as far as the system grants files; an open page has one,"
        " and while it loads a few more; more get 503",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "addresses and networks of reverse proxies, as `10.0.0.5` or `10.0.0.0/24`: only theirs"
        " counts what X-Forwarded-For and X-Forwarded-Proto say",
    )
    refresh_seconds: float = _setting(2.0, "an open page renews itself this often")
    secrets_directory: Path = _setting(
        STATE / "secrets", "where the sign-in secret and the one-time tokens live"
    )
    session_hours: float = _setting(168.0, "a sign-in lasts this long")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsSettings:
    """`gpuvigil act`, beside Slurm's commands or a Kubernetes API; the cluster's name is the collector's."""

    enabled: bool = _setting(False, "do anything at all")
    of: str = _setting("slurm", "whose nodes: slurm, or kubernetes (see `[kubernetes]`)")
    dry_run: bool = _setting(True, "only say in the log what would be done")
    faults: tuple[str, ...] = _setting(
        tuple(sorted(where(lambda row: row.drains))),
        "faults (of docs/faults.md) for which a node is drained; none that is only inferred",
    )
    after_seconds: float = _setting(120.0, "an incident stands this long before a node is drained")
    most_percent: float = _setting(
        5.0,
        "of the cluster's nodes, at most so many out of service at once, whoever took them out;"
        " `gpuvigil check --drain` and Slurm's prolog keep to it as well",
    )
    resume: bool = _setting(
        False,
        "give a node back that was drained here, once its incident is resolved and somebody has"
        " accepted it since (`gpuvigil node accept`)",
    )
    end_idle: bool = _setting(
        False,
        "end Slurm's idle jobs whose policy (`alerts.idle`) has `end_minutes`, after its notices",
    )
    ends_per_hour: int = _setting(4, "at most so many of them within any hour")
    ends_percent: float = _setting(
        2.0, "at most this much of the cluster's GPUs is taken from idle jobs within any hour"
    )
    interval_seconds: float = _setting(30.0, "it looks this often")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySettings:
    """The switch of each port, where LLDP does not tell it."""

    files: tuple[Path, ...] = _setting(
        (),
        "files that say how the fabric is wired, for the nodes named in them: Slurm's topology.conf or"
        " topology.yaml, ibnetdiscover's output, `kubectl get nodes -o json`, topograph's JSON, or TOML"
        " (docs/topology.md)",
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
    reports: tuple[ReportSettings, ...] = _setting(
        (ReportSettings(),), "reports that come by themselves"
    )
    topology: TopologySettings = _setting(TopologySettings(), "how the fabric is wired")
    log: LogSettings = _setting(LogSettings(), "the log")
