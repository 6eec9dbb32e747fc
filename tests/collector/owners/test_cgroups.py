"""What a process runs in, from control groups as their makers write them."""

import pytest

from collector.owners.cgroups import Place, job_group, parse

ID = "4f1e0c5b7a92" + "0" * 52
UID = "1f0c9a1e-3b52-4d8e-9c1a-7d7b6a5c4e3f"
UNDERSCORED = UID.replace("-", "_")
ANN = 1000


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/slurm/uid_1000/job_17/step_0/task_0", Place(job="17")),
        ("/slurm_n1/uid_1000/job_17/step_batch", Place(job="17")),
        ("/system.slice/slurmstepd.scope/job_17/step_0/user/task_0", Place(job="17")),
        ("/system.slice/n1_slurmstepd.scope/job_17/step_0/user", Place(job="17")),
        ("/system.slice/slurmd.service", Place(unit="slurmd.service")),
        (f"/docker/{ID}", Place(container="docker 4f1e0c5b7a92")),
        (f"/system.slice/docker-{ID}.scope", Place(container="docker 4f1e0c5b7a92")),
        (f"/machine.slice/libpod-{ID}.scope/container", Place(container="podman 4f1e0c5b7a92")),
        (f"/machine.slice/libpod-conmon-{ID}.scope", Place()),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
            Place(container="podman 4f1e0c5b7a92", uid=ANN),
        ),
        (f"/default/{ID}", Place(container="container 4f1e0c5b7a92")),
        (f"/system.slice/nerdctl-{ID}.scope", Place(container="nerdctl 4f1e0c5b7a92")),
        (
            f"/kubepods/burstable/pod{UID}/{ID}",
            Place(pod_uid=UID, container="container 4f1e0c5b7a92"),
        ),
        (
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            Place(pod_uid=UID, container="containerd 4f1e0c5b7a92"),
        ),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/crio-{ID}.scope",
            Place(pod_uid=UID, container="cri-o 4f1e0c5b7a92"),
        ),
        # Seen from a control group namespace of its own.
        (
            f"/../../kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            Place(pod_uid=UID, container="containerd 4f1e0c5b7a92"),
        ),
        (f"/kubepods/besteffort/pod{'ab' * 16}/{ID}", Place(pod_uid="ab" * 16, container="container 4f1e0c5b7a92")),
        ("/lxc/web", Place(container="lxc web")),
        ("/lxc.payload.web/init.scope", Place(container="lxc web")),
        ("/system.slice/jupyterhub.service", Place(unit="jupyterhub.service")),
        ("/user.slice/user-1000.slice/session-3.scope", Place(uid=ANN)),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service",
            Place(unit="train.service", uid=ANN),
        ),
        ("/", Place()),
        ("", Place()),
    ],
)  # fmt: skip
def test_a_process_is_in_what_its_path_says(path: str, place: Place) -> None:
    assert parse(f"0::{path}\n" if path else "") == place


def test_of_several_hierarchies_the_one_that_says_something_counts() -> None:
    text = f"12:pids:/\n4:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service\n"
    assert parse(text).container == "docker 4f1e0c5b7a92"


def test_people_are_told_the_narrowest_place() -> None:
    assert parse(f"0::/kubepods/pod{UID}").name == f"pod {UID}"
    assert parse("0::/system.slice/a.service").name == "a.service"
    assert parse("0::/system.slice/slurmstepd.scope/job_17/step_0").name is None


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/system.slice/slurmstepd.scope/job_17/step_0/user/task_0", "/system.slice/slurmstepd.scope/job_17"),
        ("/system.slice/slurmstepd.scope/job_17", "/system.slice/slurmstepd.scope/job_17"),
        (f"/kubepods/burstable/pod{UID}/{ID}", f"/kubepods/burstable/pod{UID}"),
        (
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice",
        ),
        # Where that is, only its own namespace knows.
        (f"/../../kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", None),
        (f"/system.slice/docker-{ID}.scope", None),
        ("/", None),
    ],
)  # fmt: skip
def test_the_group_of_a_whole_job_or_pod_is_a_part_of_the_path(
    path: str, group: str | None
) -> None:
    assert job_group(f"1:name=systemd:/slurm/job_9\n0::{path}\n") == group


def test_in_version_1_no_group_counts_all() -> None:
    assert job_group("8:memory:/slurm/uid_1000/job_17/step_0\n0::/\n") is None
