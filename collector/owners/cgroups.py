"""What a process runs in, from its control groups' paths: a job, a pod, a container, a unit.

Sources of the paths: proc_pid_cgroup(5); Slurm's cgroup plugins, versions 1 and 2 (cgroup.conf(5));
the kubelet's two drivers, cgroupfs and systemd (kubernetes/kubernetes,
pkg/kubelet/cm/cgroup_manager_linux.go); runc's systemd driver, whose scopes are `PREFIX-ID.scope`
(opencontainers/runc, docs/systemd.md); systemd.slice(5).
"""

import re
from dataclasses import dataclass

# `/slurm/uid_1000/job_17/step_0` of version 1, `/system.slice/slurmstepd.scope/job_17/...` of version 2.
_SLURM = re.compile(r"slurm[^\n]*/job_(\d+)(?:/|$)", re.MULTILINE)
# `pod<uid>` of the driver cgroupfs; in systemd's slices the uid is written with underscores. The uid of a
# static pod is a hash without any.
_POD = re.compile(
    r"(?:/|kubepods[a-z-]*-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)",
    re.MULTILINE,
)
# A container's id stands alone below a runtime's folder, or in a scope behind the runtime's prefix.
_SCOPE = re.compile(r"/([a-z][a-z-]*)-([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_FOLDER = re.compile(r"/([A-Za-z][\w.-]*)/([0-9a-f]{64})(?:/|$)", re.MULTILINE)
_LXC = re.compile(r"/lxc(?:\.payload\.|/)([^/\n]+)", re.MULTILINE)
_SLICE = re.compile(r"/user-(\d+)\.slice(?:/|$)", re.MULTILINE)
_UNIT = re.compile(r"/([^/\n]+\.service)(?:/|$)", re.MULTILINE)

_RUNTIMES = {"cri-containerd": "containerd", "crio": "cri-o", "libpod": "podman"}
_VERSION_2 = "0::"  # proc_pid_cgroup(5), before the path in the unified hierarchy
_SHOWN = 12  # characters of a container's id, as `docker ps` shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a process runs in; None is what its control groups do not tell."""

    job: str | None = None  # Slurm's
    pod_uid: str | None = None
    container: str | None = None  # "docker 4f1e0c5b7a92": the runtime, where known, and the id
    unit: str | None = None  # systemd's, nearest to the process
    uid: int | None = None  # of the user whose session or manager started it

    @property
    def name(self) -> str | None:
        """The narrowest known place, for people; without jobs, which are holders by themselves."""
        return self.container or (self.pod_uid and f"pod {self.pod_uid}") or self.unit


def parse(text: str) -> Place:
    """Parse `/proc/PID/cgroup`; of several hierarchies the first that tells something counts."""
    slurm, pod, owner = _SLURM.search(text), _POD.search(text), _SLICE.search(text)
    units = [it for it in _UNIT.findall(text) if not it.startswith("user@")]
    return Place(
        job=slurm[1] if slurm else None,
        pod_uid=pod[1].replace("_", "-") if pod else None,
        container=_container(text),
        unit=units[-1] if units else None,
        uid=int(owner[1]) if owner else None,
    )


def job_group(text: str) -> str | None:
    """Return the version 2 group of the whole job or pod in `/proc/PID/cgroup`; None without one.

    A path of another cgroup namespace begins with `/..` and does not say where the group is.
    """
    lines = (line for line in text.splitlines() if line.startswith(_VERSION_2))
    path = next(lines, "").removeprefix(_VERSION_2)
    found = _SLURM.search(path) or _POD.search(path)
    return None if found is None or path.startswith("/..") else path[: found.end()].rstrip("/")


def _container(text: str) -> str | None:
    scope, folder, lxc = _SCOPE.search(text), _FOLDER.search(text), _LXC.search(text)
    if scope and "conmon" not in scope[1]:  # conmon is podman's monitor, beside the container
        return f"{_RUNTIMES.get(scope[1], scope[1])} {scope[2][:_SHOWN]}"
    if folder:
        # Below a pod, or a namespace of containerd, the folder is not the name of a runtime.
        runtime = folder[1] if folder[1] in {"docker", "podman", "libpod"} else "container"
        return f"{_RUNTIMES.get(runtime, runtime)} {folder[2][:_SHOWN]}"
    return f"lxc {lxc[1]}" if lxc else None
