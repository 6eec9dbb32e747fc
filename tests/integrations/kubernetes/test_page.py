"""What docs/kubernetes.md tells a person to type fits what the manifests make."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuvigil.command_line import COMMANDS
from gpuvigil.config import load
from tests.kustomize import Object, identity, render, templates

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "packaging/kubernetes"
PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# Whole commands: a line that ends in a backslash goes on in the next one.
SAID = "\n".join(BLOCKS).replace("\\\n", " ") + "\n" + "\n".join(re.findall(r"`([^`\n]+)`", PAGE))
COMMAND = re.compile(r"exec ([\w/-]+) -- gpuvigil (\w+)([^|#)\n]*)")


@pytest.fixture(scope="module")
def site() -> list[Object]:
    return render(FOLDER / "overlays/site")


def named(found: list[Object], name: str) -> Object:
    """Return the pods' template of what `kubectl exec` names."""
    kinds = {it["kind"].lower(): it["kind"] for it, _ in templates(found)}
    kind, _, own = name.rpartition("/")
    if not kind:  # the first pod of a StatefulSet
        kind, own = "statefulset", own.removesuffix("-0")
    (template,) = [it for one, it in templates(found) if identity(one) == (kinds[kind], own)]
    return template


def test_commands_are_run_where_their_configuration_is(site: list[Object]) -> None:
    commands = COMMAND.findall(SAID)
    assert {command for _, command, _ in commands} == {"token", "url", "doctor", "store"}
    for name, command, words in commands:
        (one,) = named(site, name)["spec"]["containers"]
        (path,) = re.findall(r"--config (\S+)", words)
        assert command in COMMANDS
        assert path in {it["mountPath"] for it in one["volumeMounts"]}


def test_what_is_waited_for_restarted_and_forwarded_is_there(site: list[Object]) -> None:
    known = {(kind.lower(), name) for kind, name in map(identity, site)}
    waited = re.findall(r"rollout status (\w+)/([\w-]+)", SAID)
    assert waited
    assert set(waited) <= known
    restarted = {
        it for some in re.findall(r"rollout restart ([\w,]+)", SAID) for it in some.split(",")
    }
    assert restarted == {one["kind"].lower() for one, _ in templates(site)}
    ((service, port),) = re.findall(r"port-forward service/([\w-]+) (\d+)", SAID)
    (one,) = [it for it in site if identity(it) == ("Service", service)]
    assert int(port) in {it["port"] for it in one["spec"]["ports"]}
    accounts = {name for kind, name in known if kind == "serviceaccount"} | {"default"}
    (told,) = re.findall(r"patch serviceaccount NAME .* for (.*)\.$", PAGE, re.MULTILINE)
    used = {it["spec"].get("serviceAccountName", "default") for _, it in templates(site)}
    assert set(re.findall(r"`([\w-]+)`", told)) == used <= accounts


def test_the_secrets_that_are_made_are_those_that_are_mounted(site: list[Object]) -> None:
    assert "for name in collector service" in SAID
    said = SAID.replace("$name", "collector") + SAID.replace("$name", "service")
    made = set(re.findall(r"create secret generic (gpuvigil-\w+) --from-file=([\w-]+)=", said))
    mounted, files = set(), set()
    for _, template in templates(site):
        for volume in template["spec"]["volumes"]:
            sources = volume.get("projected", {}).get("sources", ())
            mounted |= {it["secret"]["name"] for it in sources}
            mounted |= {volume["secret"]["secretName"]} if "secret" in volume else set()
    for one in site:
        text = "".join(one["data"].values()) if one["kind"] == "ConfigMap" else str(one)
        files |= set(re.findall(r"/etc/gpuvigil/secrets/([\w-]+)", text))
    assert {secret for secret, _ in made} == mounted
    assert {key for _, key in made} == files
    (saved,) = re.findall(r"for name in ([\w ]+); do\n  kubectl -n gpuvigil get secret", SAID)
    assert {f"gpuvigil-{name}" for name in saved.split()} == mounted
    # The Ingress's own is the site's.
    (tls,) = [
        it["secretName"] for one in site if one["kind"] == "Ingress" for it in one["spec"]["tls"]
    ]
    assert f"create secret tls {tls} " in SAID


def test_a_backup_takes_every_volume(site: list[Object]) -> None:
    volumes = {name for kind, name in map(identity, site) if kind == "PersistentVolumeClaim"}
    for one in site:
        for claim in one.get("spec", {}).get("volumeClaimTemplates", ()):
            volumes.add(f"{claim['metadata']['name']}-{one['metadata']['name']}-0")
    (said,) = re.findall(r"^- \*\*Backups\*\*: (.*)$", PAGE, re.MULTILINE)
    assert volumes
    assert set(re.findall(r"`([\w-]+)`", said)) == volumes


def test_a_backup_goes_back_to_where_it_was_taken_from_while_nothing_runs(
    site: list[Object], tmp_path: Path
) -> None:
    archive = r"exec {}([\w/-]+) -- tar -C (\S+) {} ?(\S*) ?([<>]\S+)"
    taken = re.findall(archive.format("", "-cz"), SAID)
    back = re.findall(archive.format("-i ", "-xz"), SAID)
    assert [(pod, place, file[1:]) for pod, place, _, file in taken] == [
        (pod, place, file[1:]) for pod, place, _, file in back
    ]
    copied = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copied)
    shutil.copytree(copied / "overlays/site", copied / "overlays/ours")
    asleep = render(copied / "restore")
    for pod, place, _, _ in back:
        (one,), (before,) = (named(it, pod)["spec"]["containers"] for it in (asleep, site))
        assert place in {it["mountPath"] for it in one["volumeMounts"]}
        assert one["command"] == ["sleep", "infinity"]
        kept = before.keys() - {"command", "readinessProbe", "livenessProbe"}
        assert {key: before[key] for key in kept} == {key: one[key] for key in kept - {"command"}}
        assert not {"readinessProbe", "livenessProbe"} & one.keys()
    slept = {pod.rpartition("/")[2].removesuffix("-0") for pod, *_ in back}
    assert [it for it in asleep if identity(it)[1] not in slept or it["kind"] == "Service"] == [
        it for it in site if identity(it)[1] not in slept or it["kind"] == "Service"
    ]
    if shutil.which("kubectl") is not None:
        words = ["kubectl", "kustomize", str(copied / "restore")]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        real = {identity(it): it for it in yaml.safe_load_all(said)}
        assert real == {identity(it): it for it in asleep}


def test_the_cluster_has_one_name(site: list[Object], tmp_path: Path) -> None:
    names = set(re.findall(r"--scope scheduler --cluster (\w+)", SAID))
    for part in ("collector", "watcher"):
        (one,) = [it for it in site if identity(it) == ("ConfigMap", f"gpuvigil-{part}")]
        file = tmp_path / f"{part}.toml"
        file.write_text(one["data"][file.name], encoding="utf-8")
        names.add(load(file, {}).collector.cluster)
    assert names == {"kubernetes"}


def test_what_the_page_names_in_the_copy_is_in_the_folder_that_is_copied() -> None:
    assert "cp -r packaging/kubernetes/overlays/site packaging/kubernetes/overlays/ours" in SAID
    there = {it.name for it in (FOLDER / "overlays/site").iterdir()}
    (table,) = re.findall(r"^\| in the copy .*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w-]+\.(?:yaml|toml))`", table)) <= there
    (drivers,) = re.findall(r"^\| on the nodes .*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    wanted = {name for name in there if name.startswith("driver-")}
    assert set(re.findall(r"`([\w-]+\.yaml)`", drivers)) == wanted
    for path in re.findall(r"(?:-f|-k|--from-file=) ?(packaging/\S+)", SAID):
        assert (ROOT / path.replace("/ours", "/site")).exists(), path


def test_the_rules_become_objects_of_prometheus_operator(tmp_path: Path) -> None:
    (block,) = [it for it in BLOCKS if "PrometheusRule" in it]
    loop = block[: block.index("done\n") + len("done\n")].replace(
        "kubectl -n gpuvigil apply -f -", "cat; echo ---"
    )
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run([shell, "-c", loop], cwd=ROOT, capture_output=True, text=True, check=True)
    made = [it for it in yaml.safe_load_all(done.stdout) if it]
    assert len(made) == 2
    for one in made:
        file = ROOT / "packaging/prometheus" / f"{one['metadata']['name']}.rules.yml"
        assert one["spec"] == yaml.safe_load(file.read_text(encoding="utf-8"))
        assert (one["apiVersion"], one["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
