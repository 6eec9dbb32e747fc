"""Sources of owners on this node: its inference servers, its kubelet, Slurm's prolog and the control groups of its jobs."""

import shutil

from gpuvigil.config import CollectorSettings
from gpuvigil.errors import ConfigError

from ..inference.address import address
from ..inference.scrape_child import ask as ask_server
from ..owners.kubelet.device_map import Unknown
from ..owners.kubelet.query_child import ask as ask_kubelet
from ..sensors import files
from .diagnosis import Diagnosis, limited, missing, ok


def inference(settings: CollectorSettings) -> list[Diagnosis]:
    """Return a line for each declared address."""
    if not settings.inference_urls:
        return [ok("inference servers", "none declared in collector.inference_urls")]
    return [_server(url, settings) for url in settings.inference_urls]


def _server(url: str, settings: CollectorSettings) -> Diagnosis:
    try:
        answer = ask_server(address(url, anywhere=settings.inference_anywhere))
    except ConfigError as error:
        return missing("inference server", str(error), "set collector.inference_urls right")
    if answer.why:
        todo = "is it the page of a vLLM or a Triton?"
        return limited("inference server", f"{url}: {answer.why}", todo)
    if not answer.replicas:
        return ok("inference server", f"{url}: nobody serves there now")
    models = ", ".join(sorted({one.model or "a model without a name" for one in answer.replicas}))
    return ok("inference server", f"{url}: {answer.replicas[0].server} serves {models}")


def kubelet(settings: CollectorSettings) -> list[Diagnosis]:
    """Return one line on the kubelet."""
    socket = settings.kubelet_socket
    if socket is None:
        return [ok("kubelet", "not asked: collector.kubelet_socket is empty")]
    try:
        is_here = socket.exists()
    except PermissionError:
        is_here = True  # in a folder that this user may not enter
    if not is_here:
        return [ok("kubelet", f"none here: no {socket}")]
    answer = ask_kubelet(str(socket))
    if isinstance(answer, Unknown):
        text = f"{socket}: {answer.why}: which pod has which GPU is not known"
        return [limited("kubelet", text, "run the collector as root, or as the socket's group")]
    pods, devices = (
        len({hold.name for hold in answer.holds}),
        sum(len(hold.devices) for hold in answer.holds),
    )
    return [ok("kubelet", f"{socket}: pods that hold GPUs: {pods}, devices: {devices}")]


def disks(settings: CollectorSettings) -> list[Diagnosis]:
    """Return whether the control groups of Slurm's jobs count their bytes; nothing without Slurm's groups."""
    scopes = sorted(settings.sysfs_root.glob("fs/cgroup/system.slice/*slurmstepd.scope"))
    told = {it.name: files.read(f"{it}/cgroup.subtree_control") or "" for it in scopes}
    off = [name for name, controllers in told.items() if "io" not in controllers.split()]
    if off:
        text = f"not counted by job: controller io is off in {off[0]}"
        todo = "set EnableExtraControllers=io in cgroup.conf (docs/slurm.md)"
        return [limited("disks of jobs", text, todo)]
    return [ok("disks of jobs", "what Slurm's jobs read and write is counted")] if told else []


def slurm(settings: CollectorSettings) -> list[Diagnosis]:
    """Return one line on the files that Slurm's prolog writes."""
    folder = settings.jobs_directory
    if folder.is_dir():
        jobs = sum(one.suffix != ".ended" for one in folder.glob("[!.]*"))
        return [ok("Slurm's prolog", f"{folder}: jobs that hold GPUs: {jobs}")]
    if shutil.which("slurmd") is None:
        return [ok("Slurm's prolog", f"none here: no {folder}")]
    text = f"slurmd is here, and no job has left a file yet: no {folder}"
    todo = "if a job with GPUs began here, call gpuvigil-job from prolog and epilog: docs/slurm.md"
    return [limited("Slurm's prolog", text, todo)]
