"""A small `kubectl kustomize` for the few features that our manifests use; anything else is refused.

Kustomize, "The Kustomization File" (kubectl.docs.kubernetes.io/references/kustomize/kustomization); how lists
are merged: Kubernetes, "Strategic merge patch" (the `patchMergeKey` of each list in its API).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

KEYS = {
    "apiVersion",
    "kind",
    "namespace",
    "labels",
    "resources",
    "images",
    "configMapGenerator",
    "patches",
}
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
# Merge keys by the list's name; a list that is not here is replaced as a whole.
MERGED_BY = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def render(folder: Path) -> list[Object]:
    """Return the folder's objects; raise ValueError for features that are not known here."""
    whole = _read(folder / "kustomization.yaml")
    unknown = whole.keys() - KEYS
    if unknown or whole["kind"] != "Kustomization":
        raise ValueError(f"{folder}: not known here: {sorted(unknown)}, {whole['kind']}")
    found = _composed(folder, whole)
    for one in found:
        _finish(one, whole)
    names = [identity(one) for one in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{folder}: more than once: {sorted(twice)}")
    return found


def _composed(folder: Path, whole: Object) -> list[Object]:
    """Return the objects that the folder names and generates, patched."""
    found: list[Object] = []
    for name in whole["resources"]:
        place = (folder / name).resolve()
        found += render(place) if place.is_dir() else _documents(place)
    for generator in whole.get("configMapGenerator", ()):
        found = _with_map(found, generator, folder)
    for patch in whole.get("patches", ()):
        (change,) = _documents(folder / _only(patch, {"path"})["path"])
        found = _patched(found, change)
    return found


def _finish(one: Object, whole: Object) -> None:
    """Set an object's namespace, labels and images."""
    if one["kind"] not in CLUSTER_WIDE:
        one["metadata"]["namespace"] = whole["namespace"]
    for labels in whole.get("labels", ()):
        _label(one, _only(labels, {"pairs", "includeTemplates"}))
    for image in whole.get("images", ()):
        _rename(one, _only(image, {"name", "newName", "newTag"}))


def identity(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def templates(found: Sequence[Object]) -> Iterator[tuple[Object, Object]]:
    """Yield each object that creates pods, with its pod template."""
    return ((one, one["spec"]["template"]) for one in found if "template" in one.get("spec", {}))


def _read(file: Path) -> Object:
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _documents(file: Path) -> list[Object]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def _only(value: Object, known: set[str]) -> Object:
    if value.keys() - known:
        raise ValueError(f"not known here: {sorted(value.keys() - known)}")
    return value


def _with_map(found: Sequence[Object], generator: Object, folder: Path) -> list[Object]:
    _only(generator, {"name", "namespace", "files", "behavior", "options"})
    if generator["options"] != {"disableNameSuffixHash": True}:
        raise ValueError("names with a hash are not known here")
    name = generator["name"]
    others = [one for one in found if identity(one) != ("ConfigMap", name)]
    replaces = generator.get("behavior", "create") == "replace"
    if (len(others) < len(found)) is not replaces:
        raise ValueError(f"{name}: is to be made once, and replaced only where it is")
    data = {file: (folder / file).read_text(encoding="utf-8") for file in generator["files"]}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    for before in (one for one in found if identity(one) == ("ConfigMap", name)):
        made["metadata"] = before["metadata"]  # the replacement keeps the labels
    return [*others, made]


def _patched(found: Sequence[Object], change: Object) -> list[Object]:
    whose = _in_namespace(change)
    if whose not in map(_in_namespace, found):
        raise ValueError(f"no {whose} to patch")
    return [merged(one, change) if _in_namespace(one) == whose else one for one in found]


def _in_namespace(one: Object) -> tuple[str, str, str | None]:
    return (*identity(one), one["metadata"].get("namespace"))


def merged(one: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """Return Kubernetes' strategic merge of the two: null removes a key, and lists are merged by their keys."""
    result = deepcopy(dict(one))
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key, {}), value)
        elif key in MERGED_BY and isinstance(value, list):
            result[key] = _merged_list(result.get(key, []), value, MERGED_BY[key])
        else:
            result[key] = deepcopy(value)
    return result


def _merged_list(ours: Sequence[Object], theirs: Sequence[Object], by: str) -> list[Object]:
    first: dict[Any, Object] = {one[by]: {} for one in theirs}  # what a patch names comes first
    kept = {**first, **{one[by]: one for one in ours}}
    for one in theirs:
        if one.get("$patch") == "delete":
            if not kept.pop(one[by]):
                raise ValueError(f"no {one[by]} to delete")
        else:
            kept[one[by]] = merged(kept[one[by]], one)
    return list(kept.values())


def _label(one: Object, labels: Object) -> None:
    one["metadata"].setdefault("labels", {}).update(labels["pairs"])
    if labels.get("includeTemplates"):
        claims = one.get("spec", {}).get("volumeClaimTemplates", ())
        for template in (*(it for _, it in templates([one])), *claims):
            template["metadata"].setdefault("labels", {}).update(labels["pairs"])


def _rename(one: Object, image: Object) -> None:
    for _, template in templates([one]):
        for container in template["spec"]["containers"]:
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
