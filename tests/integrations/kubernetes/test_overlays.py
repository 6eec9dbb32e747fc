"""The whole product as Kustomize renders it: every part is there, fits the others, and has no more rights than it needs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from gpuvigil.command_line import COMMANDS
from gpuvigil.config import load
from tests.kustomize import Object, identity, merged, render, templates

FOLDER = Path(__file__).parents[3] / "packaging/kubernetes"
FOLDERS = [FOLDER / "base", *sorted((FOLDER / "overlays").iterdir())]
# What is no part of Kubernetes itself.
FOREIGN = {"PodMonitor"}
# What a person makes before, as the page says.
SECRETS = {"gpuvigil-collector", "gpuvigil-service", "gpuvigil-watcher"}
READERS = ("analyzer", "dashboard")
PARTS = {"hub", "analyzer", "alerts", "dashboard", "report", "collector", "watcher"}


@pytest.fixture(params=FOLDERS, ids=lambda it: it.name)
def rendered(request: pytest.FixtureRequest) -> list[Object]:
    return render(request.param)


@pytest.fixture(params=["driver-runtime-class", "driver-gke"])
def a_sites_own(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy as a site makes it: with how the collector comes to the driver, over two overlays at once."""
    shutil.copytree(FOLDER, tmp_path / "k")
    overlays = tmp_path / "k/overlays"
    for name, before, after in (
        ("site", "../../base", "../actions"),
        ("site", f"# - path: {request.param}.yaml", f"- path: {request.param}.yaml"),
        ("actions", "../../base", "../unprivileged"),
    ):
        file = overlays / name / "kustomization.yaml"
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1
        file.write_text(text.replace(before, after), encoding="utf-8")
    return overlays / "site"


def test_overlays_stand_upon_each_other(a_sites_own: Path) -> None:
    found = render(a_sites_own)
    assert len({container(one)["image"] for one, _ in templates(found)}) == 1
    collector = only(found, "DaemonSet", "gpuvigil-collector")
    spec = collector["spec"]["template"]["spec"]
    assert "privileged" not in container(collector)["securityContext"]
    assert ("runtimeClassName" in spec) is ("nodeSelector" in spec) is ("affinity" not in spec)
    mounts = {it["name"] for it in container(collector)["volumeMounts"]}
    assert mounts == {it["name"] for it in spec["volumes"]}
    assert only(found, "Deployment", "gpuvigil-actions")


@pytest.mark.server
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
def test_kubectl_renders_a_sites_own_the_same(a_sites_own: Path) -> None:
    test_kubectl_renders_the_same(a_sites_own)


@pytest.mark.server
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda it: it.name)
def test_kubectl_renders_the_same(folder: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    real = {identity(one): one for one in yaml.safe_load_all(done.stdout)}
    assert real == {identity(one): one for one in render(folder)}


def test_a_patch_without_a_namespace_fits_nothing(tmp_path: Path) -> None:
    for file in (FOLDER / "overlays" / "unprivileged").iterdir():
        text = file.read_text(encoding="utf-8").replace("../../base", str(FOLDER / "base"))
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    assert render(tmp_path)
    patch = tmp_path / "collector.yaml"
    lines = patch.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.strip().startswith("namespace:")]
    patch.write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(ValueError, match="to patch"):
        render(tmp_path)


def only(found: list[Object], kind: str, name: str) -> Object:
    (one,) = [it for it in found if identity(it) == (kind, name)]
    return one


def container(one: Object) -> Object:
    (found,) = one["spec"]["template"]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


def test_every_part_of_the_product_runs_one_command(rendered: list[Object]) -> None:
    made = {
        one["metadata"]["name"].removeprefix("gpuvigil-"): one for one, _ in templates(rendered)
    }
    assert PARTS <= set(made) <= PARTS | {"actions"}
    for one in made.values():
        program, command, *verb, option, path = container(one)["command"]
        assert (program, option) == ("gpuvigil", "--config")
        assert command in COMMANDS
        assert verb == (["schedule"] if command == "report" else [])
        assert path in {it["mountPath"] for it in container(one)["volumeMounts"]}
        selector = one["spec"]["selector"]["matchLabels"]
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()
        assert labels["app.kubernetes.io/part-of"] == "gpuvigil"


def test_what_is_named_is_there(rendered: list[Object]) -> None:
    known = {identity(one) for one in rendered}
    accounts = {name for kind, name in known if kind == "ServiceAccount"} | {"default"}
    for one, template in templates(rendered):
        spec = template["spec"]
        assert spec.get("serviceAccountName", "default") in accounts
        claims = {it["metadata"]["name"] for it in one["spec"].get("volumeClaimTemplates", ())}
        volumes = {it["name"]: it for it in spec["volumes"]}
        mounts = [it["name"] for it in container(one)["volumeMounts"]]
        assert set(mounts) == set(volumes) | claims
        for volume in volumes.values():
            text = json.dumps(volume)
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in known
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in known
            for secret in _secrets(volume):
                assert secret in SECRETS, text


def _secrets(volume: Object) -> list[str]:
    sources = volume.get("projected", {}).get("sources", ())
    found = [it["secret"]["name"] for it in sources]
    return [*found, volume["secret"]["secretName"]] if "secret" in volume else found


def test_services_and_policies_select_pods_that_there_are(rendered: list[Object]) -> None:
    pods = {one["metadata"]["name"]: template for one, template in templates(rendered)}
    for one in rendered:
        if one["kind"] == "Service":
            (target,) = _selected(pods, one["spec"]["selector"])
            ports = {it["name"]: it["containerPort"] for it in _ports(pods[target])}
            for port in one["spec"]["ports"]:
                assert ports[port["targetPort"]] == port["port"]
        if one["kind"] in {"NetworkPolicy", *FOREIGN}:
            selector = one["spec"].get("podSelector") or one["spec"]["selector"]
            for labels in _wanted(selector):
                assert _selected(pods, labels), one["metadata"]["name"]
        if one["kind"] == "Ingress":
            ((rule,), (path,)) = one["spec"]["rules"], one["spec"]["rules"][0]["http"]["paths"]
            assert rule["host"] in one["spec"]["tls"][0]["hosts"]
            assert path["backend"]["service"] == {
                "name": "gpuvigil-dashboard",
                "port": {"name": "http"},
            }


def _ports(template: Object) -> list[Object]:
    return [port for it in template["spec"]["containers"] for port in it.get("ports", ())]


def _wanted(selector: Object) -> list[Object]:
    if "matchLabels" in selector:
        return [selector["matchLabels"]]
    (one,) = selector["matchExpressions"]
    return [{one["key"]: value} for value in one["values"]]


def _selected(pods: dict[str, Object], labels: Object) -> list[str]:
    return [name for name, it in pods.items() if labels.items() <= it["metadata"]["labels"].items()]


def test_the_smallest_rights_that_work(rendered: list[Object]) -> None:
    for one, template in templates(rendered):
        name, spec = one["metadata"]["name"], template["spec"]
        rights = container(one)["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert "limits" in container(one)["resources"]
        if name == "gpuvigil-collector":
            assert spec["hostPID"] is True
            continue
        assert not {"hostPID", "hostNetwork"} & spec.keys()
        assert rights["runAsNonRoot"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        asks = name in {"gpuvigil-watcher", "gpuvigil-actions"}
        assert spec["automountServiceAccountToken"] is asks
        assert not [it for it in spec["volumes"] if "hostPath" in it]


def test_without_a_privileged_container_nothing_of_the_kernel_log_is_left() -> None:
    one = only(render(FOLDER / "overlays/unprivileged"), "DaemonSet", "gpuvigil-collector")
    rights = container(one)["securityContext"]
    assert "privileged" not in rights
    assert rights["capabilities"]["add"] == ["SYS_PTRACE", "DAC_READ_SEARCH"]
    assert "kmsg" not in json.dumps(one)
    base = only(render(FOLDER / "base"), "DaemonSet", "gpuvigil-collector")
    assert "kmsg" in json.dumps(base)


@pytest.mark.medium
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda it: it.name)
@pytest.mark.parametrize("part", ["hub", "analyzer", "alerts", "dashboard"])
def test_the_servers_parts_are_configured_with_what_is_mounted(
    folder: Path, part: str, tmp_path: Path
) -> None:
    found = render(folder)
    (one,) = [it for it, _ in templates(found) if it["metadata"]["name"] == f"gpuvigil-{part}"]
    text = only(found, "ConfigMap", "gpuvigil")["data"]["gpuvigil.toml"]
    tomllib.loads(text)
    file = tmp_path / "gpuvigil.toml"
    file.write_text(text)
    config = load(file, {it["name"]: it["value"] for it in container(one).get("env", ())})
    tokens = {config.hub.service_token_file, config.hub.collector_token_file} - {None}
    assert {it.parent for it in tokens if it} == {Path("/etc/gpuvigil/secrets")}
    assert (config.hub.collector_token_file is not None) is (part == "hub")
    listens = {
        "hub": (config.hub.listen, config.hub.port),
        "analyzer": (config.analyzer.metrics_listen, config.analyzer.metrics_port),
        "alerts": (config.alerts.metrics_listen, config.alerts.metrics_port),
        "dashboard": (config.dashboard.listen, config.dashboard.port),
    }
    (port,) = _ports(one["spec"]["template"])
    assert listens[part] == ("0.0.0.0", port["containerPort"])
    if part == "hub":
        assert config.hub.data_directory.is_relative_to("/var/lib/gpuvigil")
        return
    service = only(found, "Service", "gpuvigil-hub")
    namespace = service["metadata"]["namespace"]
    assert (
        config.hub.url
        == f"http://gpuvigil-hub.{namespace}.svc:{service['spec']['ports'][0]['port']}"
    )


def test_telemetry_leaves_room_on_the_hubs_volume(rendered: list[Object], tmp_path: Path) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(only(rendered, "ConfigMap", "gpuvigil")["data"][file.name], encoding="utf-8")
    (claim,) = only(rendered, "StatefulSet", "gpuvigil-hub")["spec"]["volumeClaimTemplates"]
    size = claim["spec"]["resources"]["requests"]["storage"]
    assert size.endswith("Gi")
    share = load(file, {}).hub.store_bytes / (int(size.removesuffix("Gi")) * 1024**3)
    # A fifth for records, their backups, and files that are merged: ours.
    assert 0.7 <= share <= 0.8


def test_a_quota_names_the_class_of_collectors(rendered: list[Object]) -> None:
    spec = only(rendered, "DaemonSet", "gpuvigil-collector")["spec"]["template"]["spec"]
    (scope,) = only(rendered, "ResourceQuota", "gpuvigil-collector")["spec"]["scopeSelector"][
        "matchExpressions"
    ]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert scope["values"] == [spec["priorityClassName"]]


def test_a_site_says_its_image_and_lets_prometheus_ask_collectors() -> None:
    found = render(FOLDER / "overlays/site")
    images = {container(one)["image"] for one, _ in templates(found)}
    assert images == {"registry.example.com/gpuvigil:0.1.0"}
    env = {
        it["name"]: it for it in container(only(found, "DaemonSet", "gpuvigil-collector"))["env"]
    }
    assert env["GPUVIGIL_COLLECTOR_METRICS_LISTEN"] == {
        "name": "GPUVIGIL_COLLECTOR_METRICS_LISTEN",
        "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
    }
    monitored = {port["name"] for _, it in templates(found) for port in _ports(it)}
    asked = [it for it in found if it["kind"] == "PodMonitor"]
    assert {e["port"] for it in asked for e in it["spec"]["podMetricsEndpoints"]} <= monitored
    assert {it["spec"]["jobLabel"] for it in asked} == {"app"}


@pytest.mark.medium
def test_only_a_site_lets_its_dashboard_out_to_a_provider_of_sign_in() -> None:
    for folder in FOLDERS:
        found = render(folder)
        ways = {one: _ways_out(found, {"app": f"gpuvigil-{one}"}) or () for one in READERS}
        assert all(("TCP", 8428) in one for one in ways.values())
        out = {one for one, ports in ways.items() if ("TCP", 443) in ports}
        assert out == ({"dashboard"} if folder.name == "site" else set())
        # Its receivers are anywhere, at any port.
        assert _ways_out(found, {"app": "gpuvigil-alerts"}) is None


def _ways_out(found: list[Object], labels: Object) -> set[tuple[str, int]] | None:
    """To which ports a pod gets that policies leave no other way; None for one without a bound."""
    own = [
        it["spec"]
        for it in found
        if it["kind"] == "NetworkPolicy"
        and "Egress" in it["spec"]["policyTypes"]
        and labels in _wanted(it["spec"]["podSelector"])
    ]
    if not own:
        return None
    ports = [port for it in own for rule in it["egress"] for port in rule["ports"]]
    return {(it.get("protocol", "TCP"), it["port"]) for it in ports}


def test_what_the_renderer_does_not_know_it_refuses(tmp_path: Path) -> None:
    file = tmp_path / "kustomization.yaml"
    file.write_text("kind: Kustomization\nnamespace: a\nresources: []\nreplacements: []\n")
    with pytest.raises(ValueError, match="replacements"):
        render(tmp_path)


def test_lists_are_merged_by_their_keys() -> None:
    one = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": [1, 2]}
    change: dict[str, Any] = {"env": [{"name": "B", "value": None, "x": 3}], "args": [4]}
    assert merged(one, change) == {
        "env": [{"name": "B", "x": 3}, {"name": "A", "value": "1"}],
        "args": [4],
    }
    gone = {"env": [{"name": "A", "$patch": "delete"}]}
    assert merged(one, gone)["env"] == [{"name": "B", "value": "2"}]


@pytest.mark.site
@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_the_api_of_three_versions_takes_them(version: str, rendered: list[Object]) -> None:
    import kubernetes_validate  # noqa: PLC0415 - 22 MiB of schemas

    for one in rendered:
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, version, strict=True)
    wrong = merged(rendered[0], {"metadata": {"names": "x"}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)
