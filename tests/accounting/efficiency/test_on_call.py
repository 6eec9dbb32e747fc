"""Who has a GPU to be there when it is asked for, by the names that are known."""

from datetime import datetime, timezone

import pytest

from accounting.efficiency.on_call import Serves, is_interactive, is_on_call, serves
from gpuvigil.model import Allocation, Holder, Subject

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def held(command: str | None = None, holder: str = "job 7", pod: str | None = None) -> Allocation:
    return Allocation(
        subject=Subject(cluster="c", node="n", gpu="G"),
        holder=Holder.parse(holder),
        user="alice",
        command=command,
        started_at=NOON,
        pod=pod,
    )


@pytest.mark.parametrize(
    "command",
    [
        "python -m vllm.entrypoints.openai.api_server --port 8001",
        "vllm serve meta-llama/Llama-3-8B",
        "python -m sglang.launch_server --replica",
        "/opt/tritonserver/bin/tritonserver --model-repository=/m",
        "text-generation-launcher",
        "ollama runner",
        "ray serve run app:main",
        "bert-inference",
        "model_server.py",
        "python -m ipykernel_launcher -f k.json",
        "Jupyter-Lab",
        "bash",
        "sys/dashboard/sys/bc_desktop",
    ],
)
def test_servers_and_people_are_on_call(command: str) -> None:
    assert is_on_call(held(command))


@pytest.mark.parametrize(
    "command",
    [
        "torchrun train.py --strategy ddp",
        "python score.py --shards 64",
        "observe.py",
        "conserve",
        "deserved-run",
        "preserve-weights",
        "bashful-training",
        "",
        None,
    ],
)
def test_what_runs_to_its_end_is_not(command: str | None) -> None:
    assert not is_on_call(held(command))


@pytest.mark.parametrize(
    ("holder", "pod", "expected"),
    [
        ("job Deployment/team/chat", "team/chat-6f", True),
        ("job InferenceService/team/llama", None, True),
        ("job Notebook/team/ann", None, True),
        ("job PyTorchJob/team/llama", "team/llama-0", False),
        ("pod team/vllm-0", "team/vllm-0", True),
        ("pod team/train-0", "team/train-0", False),
        ("job Job/team/redeployment", None, False),
    ],
)
def test_what_kubernetes_keeps_running_is_on_call(
    holder: str, pod: str | None, expected: bool
) -> None:
    assert is_on_call(held(None, holder, pod)) is expected


def test_a_shell_is_interactive_by_its_whole_name_and_a_notebook_by_its_beginning() -> None:
    assert is_interactive("bash")
    assert is_interactive("Jupyter-notebook")
    assert not is_interactive("bash train.sh")
    assert not is_interactive("my-jupyter")
    assert not is_interactive(None)


@pytest.mark.parametrize(
    ("command", "holder", "expected"),
    [
        ("vllm serve meta-llama/Llama-3-8B", "job 7", Serves.COMMAND),
        (None, "job Deployment/team/chat", Serves.KUBERNETES),
        ("tritonserver", "job InferenceService/team/llama", Serves.COMMAND),
        ("jupyter-server", "job 7", None),
        ("python -m ipykernel_launcher -f k.json", "job 7", None),
        ("streamlit run app.py", "job 7", None),
        (None, "job Notebook/team/ann", None),
        ("torchrun train.py", "job 7", None),
    ],
)
def test_who_waits_for_requests_serves_and_who_waits_for_a_person_does_not(
    command: str | None, holder: str, expected: Serves | None
) -> None:
    assert serves(held(command, holder)) is expected
