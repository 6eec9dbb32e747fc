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
        "", "the API server, as https://host:6443; empty takes what every pod is told"
    )
    token_file: Path | None = _setting(_ACCOUNT / "token", "the service account's token")
    ca_file: Path | None = _setting(
        _ACCOUNT / "ca.crt", "CA that has signed the API server's certificate, in PEM"
    )
    user_label: str = _setting("", "label or annotation of a pod that says whose it is")
    account_label: str = _setting(
        "", "label or annotation that says for which team; without it the namespace does"
    )
    partition_label: str = _setting(
        "kueue.x-k8s.io/queue-name", "label or annotation that says in which queue it was"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """`gpuvigil slurm`, on one machine of a Slurm cluster; the cluster's name is the collector's."""

    interval_seconds: float = _setting(
        60.0,
        "Slurm's controller is asked this often, at least 5; less often while it does not answer."
        " Keep it well below Slurm's MinJobAge, in which an ended job can still be asked for",
    )
    timeout_seconds: float = _setting(20.0, "a question that takes longer is given up")
    requests_per_minute: int = _setting(6, "most questions within any minute; a round has two")
    directory: str = _setting("", "where squeue and scontrol lie; empty takes the search path")
    spool_directory: Path = _setting(STATE / "slurm", "where records wait while the hub is away")
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "most bytes that may wait; the oldest are dropped and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandSettings:
    """`gpuvigil infiniband`, on one machine of a fabric; the cluster's name is the collector's."""

    interval_seconds: float = _setting(60.0, "the fabric is read this often, at least 5")
    timeout_seconds: float = _setting(60.0, "a tool that takes longer is ended")
    directory: str = _setting(
        "", "where ibnetdiscover and the others lie; empty takes the search path"
    )
    port: str = _setting(
        "", "port into the fabric, as `mlx5_0/1`; empty takes the first that is up"
    )
    spool_directory: Path = _setting(
        STATE / "infiniband", "where records wait while the hub is away"
    )
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "most bytes that may wait; the oldest are dropped and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluxdbSettings:
    """`gpuvigil influxdb`: writes gpuvigil's results to a site's own InfluxDB. `[store]` is for telemetry."""

    url: str = _setting("", "the InfluxDB, as https://influxdb.example:8086")
    bucket: str = _setting("gpuvigil", "bucket; before 1.8 the database")
    organization: str = _setting("", "organization, where InfluxDB 2 asks for one")
    token_file: Path | None = _setting(
        None, "file that holds a token which may write to the bucket"
    )
    user: str = _setting("", "user name, where the server asks for one and a password")
    password_file: Path | None = _setting(None, "file that holds the password")
    ca_file: Path | None = _setting(None, "certificates to trust instead of the system's")
    interval_seconds: float = _setting(60.0, "states of GPUs are written this often, at least 1")
    batch_count: int = _setting(5000, "lines of one write")
    waiting_count: int = _setting(
        200_000,
        "most lines of states that wait while InfluxDB is away; the oldest are dropped and counted",
    )
    directory: Path = _setting(STATE / "influxdb", "where it keeps how far it has come")
    metrics_listen: str = _setting("127.0.0.1", "address of its /metrics")
    metrics_port: int = _setting(-1, "its port; 0 takes a free one, -1 serves none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchesSettings:
    """`gpuvigil switches`, once per site; the cluster's name is the collector's."""

    url: str = _setting("", "the site's own Prometheus, or what speaks its API")
    mappings: tuple[Path, ...] = _setting(
        (), "mapping files: what it is asked of switches, and what the answers mean"
    )
    token_file: Path | None = _setting(None, "file that holds a bearer token for it")
    user: str = _setting("", "user name, where it asks for one and a password")
    password_file: Path | None = _setting(None, "file that holds the password")
    ca_file: Path | None = _setting(None, "certificates to trust instead of the system's")
    interval_seconds: float = _setting(60.0, "it is asked this often, at least 5")
    timeout_seconds: float = _setting(20.0, "an answer that takes longer is given up")
    answer_bytes: int = _setting(64 * 1024 * 1024, "largest answer to one query, inflated")
    lost_after_seconds: float = _setting(
        180.0,
        "a switch without series for this long does not answer; keep it above two scrapes, since one"
        " that fails takes the series with it",
    )
    spool_directory: Path = _setting(STATE / "switches", "where records wait while the hub is away")
    spool_bytes: int = _setting(
        64 * 1024 * 1024, "most bytes that may wait; the oldest are dropped and counted"
    )
