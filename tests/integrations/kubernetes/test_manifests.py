"""The manifests of packaging/kubernetes: they fit the code, and give no more rights than it asks for."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuvigil.command_line import COMMANDS
from gpuvigil.config import load
from gpuvigil.config.integrations import KubernetesSettings
from gpuvigil.config.settings import CollectorSettings
from integrations.kubernetes.service import NODES, PODS
from integrations.kubernetes.workloads import PLURALS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "packaging/kubernetes"


def manifest(name: str) -> dict[str, Any]:
    """The objects of one file by their kind."""
    place = "overlays/actions" if name == "actions.yaml" else "base"
    found = list(yaml.safe_load_all((FOLDER / place / name).read_text()))
    kinds = {one["kind"]: one for one in found}
    assert len(kinds) == len(found)
    return kinds


def container(workload: Any) -> Any:
    (one,) = workload["spec"]["template"]["spec"]["containers"]
    return one


def rights(name: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in manifest(name)["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_only_who_cordons_may_change_anything_and_only_nodes() -> None:
    assert rights("actions.yaml") == {("", "nodes", verb) for verb in ("get", "list", "patch")}
    assert {verb for _, _, verb in rights("watcher.yaml")} == {"get", "list", "watch"}


def test_the_watcher_may_do_what_it_does_and_nothing_else() -> None:
    given = rights("watcher.yaml")
    watched = [re.fullmatch(r"/api/v1/(\w+)", path) for path in (NODES, PODS)]
    asked = {("", m[1], verb) for m in watched if m for verb in ("list", "watch")}
    asked |= {(group, plural, "get") for (group, _), plural in PLURALS.items()}
    assert given == asked


@pytest.mark.parametrize("name", ["watcher.yaml", "actions.yaml"])
def test_the_role_is_bound_to_the_account_that_it_is_for(name: str) -> None:
    kinds = manifest(name)
    account = kinds["ServiceAccount"]["metadata"]["name"]
    binding, spec = kinds["ClusterRoleBinding"], kinds["Deployment"]["spec"]["template"]["spec"]
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == kinds["ClusterRole"]["metadata"]["name"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (account, True)


def test_the_collector_has_no_right_at_the_api_server() -> None:
    kinds = manifest("collector.yaml")
    assert set(kinds) == {"ServiceAccount", "ConfigMap", "DaemonSet"}
    spec = kinds["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostPID"] is True


def test_a_device_that_is_read_needs_a_privileged_container() -> None:
    one = container(manifest("collector.yaml")["DaemonSet"])
    devices = [it for it in one["volumeMounts"] if it["mountPath"].startswith("/dev/")]
    assert one["securityContext"].get("privileged", False) is bool(devices)
    assert all(it["readOnly"] for it in devices)
    assert one["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("name", "kind", "secret"),
    [
        ("collector.yaml", "DaemonSet", "collector_token_file"),
        ("watcher.yaml", "Deployment", "scheduler_token_file"),
        ("actions.yaml", "Deployment", "service_token_file"),
    ],
)
def test_what_runs_is_configured_with_what_is_mounted(
    name: str, kind: str, secret: str, tmp_path: Path
) -> None:
    kinds = manifest(name)
    one = container(kinds[kind])
    program, command, option, path = one["command"]
    assert (program, command in COMMANDS, option) == ("gpuvigil", True, "--config")
    mounts = {mount["mountPath"]: mount for mount in one["volumeMounts"]}
    ((file, text),) = kinds["ConfigMap"]["data"].items()
    assert mounts[path]["subPath"] == file
    (tmp_path / file).write_text(text)
    variables = {it["name"]: it.get("value", "n1") for it in one.get("env", ())}
    ours = {key: value for key, value in variables.items() if key.startswith("GPUVIGIL_")}
    config = load(tmp_path / file, ours)
    token = getattr(config.hub, secret)
    assert str(token.parent) in mounts
    if name == "collector.yaml":
        usual = CollectorSettings()
        assert usual.kubelet_socket is not None
        folders = (usual.kubelet_socket.parent, usual.runtime_directory)
        assert set(mounts) >= {"/var/lib/gpuvigil", *map(str, folders)}
    volumes = {it["name"] for it in kinds[kind]["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == volumes


def test_the_service_account_is_read_where_kubernetes_puts_it() -> None:
    # kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin, "bound service account token volume".
    folder = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    settings = KubernetesSettings()
    assert (settings.token_file, settings.ca_file) == (folder / "token", folder / "ca.crt")
