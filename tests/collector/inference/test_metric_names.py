"""What pages of several versions of vLLM and Triton tell, and what no page can do to us."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.inference import exposition, scrape_child
from collector.inference.metric_names import NAMES, replicas
from collector.inference.scrape_result import MOST_REPLICAS, Answer, Replica, line, parse
from tests.collector.inference.pages import page

LLAMA = "meta-llama/Meta-Llama-3-8B"
GPUS = tuple(f"GPU-{d * 8}-{d * 4}-{d * 4}-{d * 4}-{d * 12}" for d in "01")


def told(text: str) -> tuple[Replica, ...]:
    return replicas(exposition.samples(text.encode()))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "vllm-0.5",
            [
                Replica(
                    server="vllm",
                    model=LLAMA,
                    engine="",
                    requests_running=3.0,
                    requests_waiting=1.0,
                    kv_cache_percent=12.5,
                    requests=47.0,
                    preemptions=2.0,
                )
            ],
        ),
        (
            "vllm-0.9",
            [
                Replica(
                    server="vllm",
                    model="qwen",
                    engine="0",
                    requests_running=5.0,
                    requests_waiting=0.0,
                    kv_cache_percent=25.0,
                    requests=121.0,
                    preemptions=0.0,
                    queue_seconds=6.05,
                )
            ],
        ),
        (
            "vllm-0.11-two-engines",
            [
                Replica(
                    server="vllm",
                    model="qwen",
                    engine="0",
                    requests_running=8.0,
                    requests_waiting=4.0,
                    kv_cache_percent=97.0,
                    requests=300.0,
                    preemptions=9.0,
                ),
                Replica(
                    server="vllm",
                    model="qwen",
                    engine="1",
                    requests_running=2.0,
                    requests_waiting=0.0,
                    kv_cache_percent=11.0,
                    requests=60.0,
                    preemptions=0.0,
                ),
            ],
        ),
        (
            "triton-21",
            [
                Replica(
                    server="triton",
                    model="resnet50",
                    engine="1",
                    gpus=GPUS,
                    requests=201.0,
                    queue_seconds=0.3,
                )
            ],
        ),
        (
            "triton-24",
            [
                Replica(
                    server="triton",
                    model="tensorrt_llm",
                    engine="1",
                    requests_running=6.0,
                    requests_waiting=3.0,
                    kv_cache_percent=25.0,
                    requests=90.0,
                    queue_seconds=4.5,
                )
            ],
        ),
        (
            "triton-25",
            [
                Replica(
                    server="triton",
                    model="tensorrt_llm",
                    engine="1",
                    requests_running=6.0,
                    requests_waiting=2.0,
                    kv_cache_percent=50.0,
                    requests=90.0,
                    queue_seconds=4.5,
                )
            ],
        ),
    ],
)
def test_a_page_says_what_it_says_in_each_version(name: str, expected: list[Replica]) -> None:
    assert list(told(page(name).decode())) == expected


def test_what_a_page_does_not_say_is_not_zero() -> None:
    (one,) = told('vllm:num_requests_running{model_name="m"} 0\n')
    assert one.requests_running == 0.0
    assert (one.requests_waiting, one.kv_cache_percent, one.requests) == (None, None, None)


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_a_pages_lines_changes_nothing(chance: random.Random) -> None:
    for name in ("vllm-0.9", "triton-25", "triton-21"):
        lines = page(name).decode().splitlines()
        mixed = chance.sample(lines, len(lines))
        for one, other in zip(told("\n".join(lines)), told("\n".join(mixed)), strict=True):
            assert one.requests == other.requests
            assert one.kv_cache_percent == other.kv_cache_percent
            assert one.requests_waiting == other.requests_waiting


_BAD = st.sampled_from(["NaN", "-Inf", "+Inf", "-3", "1e400", "x", "", "1 2 3", "0x1"])
_LABELS = st.text(max_size=40) | st.sampled_from(
    ['{model_name="a', '{a="\\', "{}", '{model_name="\\n\x00,"}']
)


@given(st.lists(st.tuples(st.sampled_from(sorted(NAMES)), _LABELS, _BAD), max_size=20))
def test_no_text_makes_a_number_that_was_not_measured(parts: list[tuple[str, str, str]]) -> None:
    text = "\n".join(f"{name}{labels} {value}" for name, labels, value in parts)
    good = 'vllm:num_requests_running{model_name="the one"} 7'
    found = {one.model: one for one in told(f"{text}\n{good}\n{text}")}
    assert found["the one"].requests_running == 7.0
    for one in found.values():
        assert one.model.isprintable()
        assert not one.model.endswith("\\")
    answer = Answer(url="u", replicas=tuple(found.values()))
    assert parse(line(answer)) == answer


def test_a_page_of_a_thousand_models_is_cut() -> None:
    text = "\n".join(f'vllm:num_requests_running{{model_name="m{i}"}} 1' for i in range(1000))
    assert len(told(text)) == MOST_REPLICAS


def test_a_page_of_short_lines_takes_no_more_memory_than_itself() -> None:
    good = b'vllm:num_requests_running{model_name="m"} 7\n'
    content = b"a\n" * (scrape_child.LARGEST_BYTES // 2) + good
    assert replicas(exposition.samples(good))
    tracemalloc.start()
    (one,) = replicas(exposition.samples(content))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert one.requests_running == 7.0
    assert most < len(content)
