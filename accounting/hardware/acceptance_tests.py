"""Verdicts from the output of a node's acceptance tests: pure. gpuvigil runs none of them.

`dcgmi diag`, text and `-j`: NVIDIA's "DCGM Diagnostics" user guide and the comment on its JSON in DCGM's
nvvs/include/NvvsCommon.h (`test_categories`, `tests`, `results` with `status` Pass, Fail, Warn or Skip).
nccl-tests (`all_reduce_perf` and its siblings): src/common.cu of NVIDIA/nccl-tests prints a row for each
size with `#wrong`, and at the end `# Out of bounds values : N OK` or `FAILED`, and `# Avg bus bandwidth`.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

# The longest run of all sizes writes some 100 kB.
LONGEST_OUTPUT = 4 * 1024 * 1024
_MOST_NAMED = 6


class Outcome(str, Enum):
    """The result of a node's tests."""

    PASSED = "passed"
    FAILED = "failed"
    UNJUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one output in one line, and the hosts it names, if any."""

    outcome: Outcome
    tool: str
    text: str
    hosts: frozenset[str] = frozenset()


def judge(output: str, least_bandwidth: float | None = None) -> Verdict:
    """Return the verdict of one output; `least_bandwidth` is for nccl-tests' largest size, in GB/s.

    Output that was cut short, tested nothing or cannot be read is not judged, and never passes.
    """
    if len(output) > LONGEST_OUTPUT:
        return _unjudged("", "it is larger than 4 MiB")
    found = list(_verdicts(output, least_bandwidth))
    if not found:
        return _unjudged("", "it is neither of dcgmi diag nor of nccl-tests")
    return _all_of(found)


def _verdicts(output: str, least: float | None) -> Iterator[Verdict]:
    """Yield a verdict for each tool in the output, since a file may hold the logs of several."""
    if '"DCGM' in output:
        yield from _dcgm_json(output)
    if _HEADER in output or _SUCCESS in output:
        yield _dcgm_table(output)
    if "# Out of bounds values" in output or _NCCL_HEADER.search(output):
        yield _nccl(output, least)


def _all_of(found: Sequence[Verdict]) -> Verdict:
    """Combine verdicts: a failure wins, then what is not judged; the whole passes where all did."""
    for outcome in (Outcome.FAILED, Outcome.UNJUDGED):
        for one in found:
            if one.outcome is outcome:
                return replace(one, hosts=_hosts(found))
    tools = " and ".join(dict.fromkeys(one.tool for one in found))
    text = "; ".join(one.text for one in found)
    return Verdict(outcome=Outcome.PASSED, tool=tools, text=text, hosts=_hosts(found))


def _hosts(found: Sequence[Verdict]) -> frozenset[str]:
    return frozenset[str]().union(*(one.hosts for one in found))


def together(found: Sequence[Verdict], node: str) -> Verdict:
    """Combine the verdicts of a node's outputs: it passes where all did, and each that names hosts names it.

    An output from other hosts is no verdict on this node, whatever it says.
    """
    if not found:
        return _unjudged("", "no output was given")
    strange = [one for one in found if one.hosts and not _names(one.hosts, node)]
    ours = [one for one in found if one not in strange]
    said = _all_of(ours) if ours else None
    if said is None or (strange and said.outcome is not Outcome.FAILED):
        hosts = ", ".join(sorted(strange[0].hosts)[:_MOST_NAMED])
        return _unjudged(strange[0].tool, f"it was run on {hosts}, and not on {node}")
    return said


def _names(hosts: frozenset[str], node: str) -> bool:
    """Return whether the hosts include the node, by short names: a host may print either its short or full name."""
    return node.partition(".")[0] in {host.partition(".")[0] for host in hosts}


def _unjudged(tool: str, why: str, hosts: frozenset[str] = frozenset()) -> Verdict:
    text = f"{tool or 'output'}: {why}"
    return Verdict(outcome=Outcome.UNJUDGED, tool=tool, text=text, hosts=hosts)


# What dcgmi prints before the table, the table's head, and the border that closes it.
_SUCCESS, _HEADER = "Successfully ran diagnostic", "| Diagnostic"
_BORDER = re.compile(r"\+-+\+-+\+")
# A row of the table: `| PCIe                      | Pass - All                                     |`.
_ROW = re.compile(r"^\|\s*([^|]*?)\s*\|\s*([^|]*?)\s*\|\s*$", re.MULTILINE)
_WORD = re.compile(r"(?i)(?:GPU\s*\d+:\s*)?(pass|fail|warn|skip)")
_ERROR = re.compile(r"(?im)^\s*error:\s*(.+)$")


def _table(output: str) -> Iterator[tuple[str, str]]:
    """Yield each test with its result; a row without a name belongs to the test before."""
    test = ""
    for name, value in _ROW.findall(output):
        test = name or test
        word = _WORD.match(value)
        if word is not None:
            yield test, word[1].lower()


def _dcgm_table(output: str) -> Verdict:
    """Return the verdict of the tables; one without its end may lack the test that fails, so it never passes."""
    said = _dcgm(list(_table(output)), _error_text(output))
    runs = output.split(_SUCCESS)
    whole = _HEADER not in runs[0] and all(map(_closed, runs[1:]))
    if said.outcome is Outcome.PASSED and not whole:
        return _unjudged("dcgmi diag", "its table was cut short")
    return said


def _closed(run: str) -> bool:
    """Whether what follows the success line is one table, to its closing border."""
    _, _, table = run.partition(_HEADER)
    lines = [line for line in map(str.strip, table.splitlines()) if line.startswith(("|", "+"))]
    return _HEADER not in table and bool(lines) and _BORDER.fullmatch(lines[-1]) is not None


def _error_text(output: str) -> str:
    found = _ERROR.search(output)
    return found[1].strip() if found else ""


_OBJECT = re.compile(r'\{\s*"')


def _dcgm_json(output: str) -> Iterator[Verdict]:
    """Yield a verdict for each JSON object of dcgmi in the output, whatever stands around it."""
    end = 0
    while (begin := _OBJECT.search(output, end)) is not None and '"DCGM' in output[end:]:
        try:
            told, end = json.JSONDecoder().raw_decode(output, begin.start())
            inner = next(value for key, value in told.items() if key.startswith("DCGM"))
            results = list(_results(inner))
            error = str(inner.get("runtime_error") or "")
        except (ValueError, AttributeError, KeyError, TypeError, StopIteration, RecursionError):
            yield _unjudged("dcgmi diag", "its JSON cannot be read, or was cut short")
            return
        yield _dcgm(results, error)


def _results(output: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for category in output.get("test_categories", ()):
        for test in category["tests"]:
            summary = test.get("test_summary")
            for result in (*test.get("results", ()), *([summary] if summary else [])):
                word = _WORD.match(str(result.get("status", "")))
                yield str(test["name"]), word[1].lower() if word else "fail"


def _dcgm(results: Sequence[tuple[str, str]], error: str) -> Verdict:
    """Judge by the worst result of each test; a warning is reported but fails nothing, as in dcgmi itself."""
    by: dict[str, set[str]] = {}
    for name, word in results:
        by.setdefault(name, set()).add(word)
    failed = [name for name, words in by.items() if "fail" in words]
    if failed or error:
        why = f"{_listed(failed)} failed" if failed else error
        return Verdict(outcome=Outcome.FAILED, tool="dcgmi diag", text=f"dcgmi diag: {why}")
    passed = [name for name, words in by.items() if "pass" in words]
    if not passed:
        return _unjudged("dcgmi diag", "no test of it ran to its end")
    warned = [name for name, words in by.items() if "warn" in words]
    skipped = len([name for name, words in by.items() if words == {"skip"}])
    said = [f"{len(passed)} test{'s' if passed[1:] else ''} passed"]
    said += [f"{skipped} skipped"] if skipped else []
    said += [f"warnings of {_listed(warned)}"] if warned else []
    return Verdict(outcome=Outcome.PASSED, tool="dcgmi diag", text=f"dcgmi diag: {', '.join(said)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# size, count, type, redop, root, then time, algbw, busbw and #wrong out of place and in place;
# a launcher may write a rank before each line (`0: 1024 ...`), and releases before 2.12 have no root
# and an error in place of #wrong.
_PREFIX = re.compile(r"(?m)^\s*(?:\[?\d+(?:,\d+)?\]?(?:<stdout>)?:)\s")
_NCCL_HEADER = re.compile(r"#\s+size\s+count\s+type")
_HOST = re.compile(r"#\s+Rank\s+\d+.*?\bon\s+(\S+)\s+device\b")
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
_BROKEN = re.compile(r"Test (?:NCCL|CUDA) failure.*")
_CONCLUDED = re.compile(r"#\s*Collective test (?:starting|concluded):\s*(\w+)")


def _nccl(output: str, least: float | None) -> Verdict:
    text = _PREFIX.sub("", output)
    named = _CONCLUDED.search(text)
    tool = named[1] if named else "nccl-tests"
    hosts = frozenset(_HOST.findall(text))
    broken = _BROKEN.search(text)
    if broken is not None:
        return _failed(tool, broken[0].strip(), hosts)
    bounds = _BOUNDS.findall(text)
    rows = [found for line in text.splitlines() if (found := _row(line)) is not None]
    wrong = sum(row.wrong for row in rows)
    if wrong or any(word == "FAILED" for _, word in bounds):
        return _failed(tool, f"{wrong or bounds[-1][0]} wrong values", hosts)
    # Each run begins with a header and ends with its out-of-bounds line.
    if not rows or len(bounds) != len(_NCCL_HEADER.findall(text)):
        return _unjudged(tool, "it did not run to its end", hosts)
    if not all(math.isfinite(row.bandwidth) for row in rows):
        return _unjudged(tool, "a bandwidth in it is no number", hosts)
    size = max(row.size for row in rows)
    bandwidth = min(row.bandwidth for row in rows if row.size == size)
    said = f"{bandwidth:.1f} GB/s bus bandwidth at {size / 2**20:,.0f} MiB"
    if least is not None and not bandwidth >= least:
        return _failed(tool, f"{said}, less than {least:g}", hosts)
    said += f", at least {least:g} asked for" if least is not None else ", no least was given"
    return Verdict(outcome=Outcome.PASSED, tool=tool, text=f"{tool}: {said}", hosts=hosts)


def _failed(tool: str, why: str, hosts: frozenset[str]) -> Verdict:
    return Verdict(outcome=Outcome.FAILED, tool=tool, text=f"{tool}: {why}", hosts=hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    size: int
    bandwidth: float  # bus bandwidth, the better of out of place and in place
    wrong: int


def _row(line: str) -> _Row | None:
    """Parse the row of one size; None for any other line."""
    parts = line.split()
    if len(parts) < 11 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    out, into = parts[-8:-4], parts[-4:]
    both = [_number(it[2]) for it in (out, into)]
    wrong = sum(int(it[3]) for it in (out, into) if it[3].isdigit())
    bandwidth = max(both) if all(map(math.isfinite, both)) else math.nan
    return _Row(size=int(parts[0]), bandwidth=bandwidth, wrong=wrong)


def _number(text: str) -> float:
    """Parse a number; anything else becomes NaN, so that its row still counts."""
    try:
        return float(text)
    except ValueError:
        return math.nan
