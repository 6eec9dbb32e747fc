"""Settings of integrations that run in one place: schedulers, fabrics, and a site's own Prometheus."""

from dataclasses import dataclass
from pathlib import Path

from .setting import STATE
from .setting import setting as _setting

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """`gpuvigil kubernetes`, once per cluster; the cluster's name is the collector's."""

    api_url: str = _setting(
        "", "the API server, such as https://host:6443; empty: from the pod's environment"
    )
    token_file: Path | None = _setting(_ACCOUNT / "token", "the service account's token")
    ca_file: Path | None = _setting(
        _ACCOUNT / "ca.crt", "CA of the API server's certificate, in PEM"
    )
    user_label: str = _setting("", "label or annotation of a pod that names its user")
    account_label: str = _setting(
        "", "label or annotation that names its team; empty: the namespace"
    )
    partition_label: str = _setting(
        "kueue.x-k8s.io/queue-name", "label or annotation that names its queue"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """`gpuvigil slurm`, on one machine of a Slurm cluster; the cluster's name is the collector's."""

    interval_seconds: float = _setting(
        60.0,
        "how often Slurm's controller is asked, at least 5; less often while it does not answer. Keep it well below Slurm's MinJobAge, after which ended jobs are forgotten",
    )
    timeout_seconds: float = _setting(20.0, "timeout of a query")
    requests_per_minute: int = _setting(6, "maximum queries per minute; a round needs two")
    directory: str = _setting("", "directory of squeue and scontrol; empty: the search path")
    spool_directory: Path = _setting(
        STATE / "slurm", "where records wait while the hub is unreachable"
    )
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "maximum bytes that wait; beyond it the oldest are dropped and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandSettings:
    """`gpuvigil infiniband`, on one machine of a fabric; the cluster's name is the collector's."""

    interval_seconds: float = _setting(60.0, "how often the fabric is read, at least 5")
    timeout_seconds: float = _setting(60.0, "time limit of a tool")
    directory: str = _setting(
        "", "directory of ibnetdiscover and the other tools; empty: the search path"
    )
    port: str = _setting(
        "", "port into the fabric, such as `mlx5_0/1`; empty: the first that is up"
    )
    spool_directory: Path = _setting(
        STATE / "infiniband", "where records wait while the hub is unreachable"
    )
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "maximum bytes that wait; beyond it the oldest are dropped and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluxdbSettings:
    """`gpuvigil influxdb`: writes gpuvigil's results to a site's own InfluxDB. `[store]` is for telemetry."""

    url: str = _setting("", "address of the InfluxDB, such as https://influxdb.example:8086")
    bucket: str = _setting("gpuvigil", "bucket; before 1.8 the database")
    organization: str = _setting("", "organization, which InfluxDB 2 needs")
    token_file: Path | None = _setting(None, "file with a token that may write to the bucket")
    user: str = _setting("", "user name, if the server needs one")
    password_file: Path | None = _setting(None, "file with the password")
    ca_file: Path | None = _setting(None, "CA certificates to trust instead of the system's")
    interval_seconds: float = _setting(60.0, "how often states of GPUs are written, at least 1")
    batch_count: int = _setting(5000, "lines per write")
    waiting_count: int = _setting(
        200_000,
        "maximum lines of states that wait while InfluxDB is unreachable; beyond it the oldest are dropped and counted",
    )
    directory: Path = _setting(STATE / "influxdb", "where it keeps its position")
    metrics_listen: str = _setting("127.0.0.1", "address of its /metrics")
    metrics_port: int = _setting(-1, "its port; 0: any free port; -1: off")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchesSettings:
    """`gpuvigil switches`, once per site; the cluster's name is the collector's."""

    url: str = _setting("", "your own Prometheus, or a server with its API")
    mappings: tuple[Path, ...] = _setting(
        (),
        "mapping files: which queries give which metrics of switches, or of power supplies, fans, power feeds and coolant",
    )
    token_file: Path | None = _setting(None, "file with a bearer token for it")
    user: str = _setting("", "user name, if it needs one")
    password_file: Path | None = _setting(None, "file with the password")
    ca_file: Path | None = _setting(None, "CA certificates to trust instead of the system's")
    interval_seconds: float = _setting(60.0, "how often it is queried, at least 5")
    timeout_seconds: float = _setting(20.0, "timeout of a query")
    answer_bytes: int = _setting(64 * 1024 * 1024, "maximum size of an answer, uncompressed")
    lost_after_seconds: float = _setting(
        180.0,
        "a switch without series for this long counts as not answering; keep it above two scrape intervals, since series vanish when one scrape fails",
    )
    spool_directory: Path = _setting(
        STATE / "switches", "where records wait while the hub is unreachable"
    )
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "maximum bytes that wait; beyond it the oldest are dropped and counted"
    )
