"""Lines of Prometheus's text format are read as prometheus-client's own parser reads them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.inference.exposition import sample
from collector.inference.metric_names import Sample
from tests.collector.inference.pages import PAGES

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
VALUES = st.one_of(
    st.floats().map(repr), st.sampled_from(["+Inf", "-Inf", "NaN", "1e3", "0", "-2"])
)
# Names that begin with two underscores are reserved for Prometheus itself.
LABELS = st.dictionaries(
    NAMES.filter(lambda name: not name.startswith("__")),
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])),
)


def by_the_library(line: str) -> Sample:
    ((one,),) = (family.samples for family in text_string_to_metric_families(line + "\n"))
    return one.name, one.labels, float(one.value)  # whole numbers are int there


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(name=NAMES, labels=LABELS, value=VALUES, at=st.sampled_from(["", " 1700000000000", " -5"]))
def test_what_is_a_sample_is_read_alike(
    name: str, labels: dict[str, str], value: str, at: str
) -> None:
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    for line in (
        f"nv_{name}{{{inside}}} {value}{at}",
        f"nv_{name} {{{inside},}}  {value} {at}" if labels else f"nv_{name}\t{value}{at} ",
    ):
        found = sample(line)
        assert found is not None, line
        assert found[:2] == (f"nv_{name}", labels)
        assert repr(found[2]) == repr(float(value))
        assert repr(found) == repr(by_the_library(line))


@pytest.mark.parametrize("file", sorted(PAGES.glob("*.txt")), ids=lambda file: file.stem)
def test_the_pages_of_real_servers_are_read_alike(file: Path) -> None:
    lines = [
        one for one in file.read_text().splitlines() if one.strip() and not one.startswith("#")
    ]
    assert lines
    for line in lines:
        assert sample(line) == by_the_library(line), line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "vllm:a",
        "vllm:a{",
        'vllm:a{b="c} 1',
        'vllm:a{b="c"} x',
        'vllm:a{b="c" d="e"} 1',
        'vllm:a{b="c",,d="e"} 1',
        "vllm:a{b=c} 1",
        'vllm:a{="c"} 1',
        "vllm:a 1 2 3",
        "vllm:a 1 x",
    ],
)
def test_what_is_no_sample_is_passed_over(line: str) -> None:
    assert sample(line) is None
