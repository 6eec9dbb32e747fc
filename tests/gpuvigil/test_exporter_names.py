"""Whom the labels of dcgm-exporter name."""

import pytest

from gpuvigil.store.exporter_names import holder_of

OWN = {"pod": "nvidia-dcgm-exporter-x7k2p", "namespace": "gpu-operator"}


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"hpc_job": "1042"}, ("job 1042", None)),
        ({"pod": "llama-0", "namespace": "train"}, ("pod train/llama-0", "train/llama-0")),
        (
            {"pod_name": "llama-0", "pod_namespace": "train"},
            ("pod train/llama-0", "train/llama-0"),
        ),
        (
            {**OWN, "exported_pod": "llama-0", "exported_namespace": "train"},
            ("pod train/llama-0", "train/llama-0"),
        ),
        (OWN, None),
        ({"pod": "nvidia-gpu-exporter-x7k2p", "namespace": "monitoring"}, None),
        ({"pod": "gpuvigil-collector-x7k2p", "namespace": "gpuvigil"}, None),
        ({"hpc_job": "", "pod": ""}, None),
        ({}, None),
    ],
)
def test_a_job_or_a_pod_is_named_and_never_the_exporters_own_pod(
    labels: dict[str, str], named: tuple[str, str | None] | None
) -> None:
    found = holder_of(labels)
    assert (found and (str(found[0]), found[1])) == named
