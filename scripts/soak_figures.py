"""The section "Long fault runs" of `docs/benchmarks.md`, from `soak/results.json`."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any


def section(results: dict[str, Any]) -> Iterator[str]:
    """Yield a row for each run: what was done to the hub, and the result."""
    yield "## Long fault runs"
    yield ""
    yield "From `soak/results.json`, which `make soak` writes at the end of each run, passed or failed. `SOAK_SEED=...` repeats a run."
    yield "They take up to an hour each. A row is about its commit: no test fails when its code has changed since."
    yield ""
    yield "| run | what was done | result | took | commit, begun | command |"
    yield "|---|---|---|---|---|---|"
    for name, words in _RUNS.items():
        if name in results:
            found = results[name]
            done, came = words(found)
            how = "" if found["passed"] else "**failed**: "
            yield (
                f"| {name} | {done} | {how}{came} | {found['duration_seconds'] / 60:.0f} min |"
                f" `{found['commit']}`, {found['begun_at'][:16]} | `{found['command']}` |"
            )


def _kills(found: dict[str, Any]) -> tuple[str, str]:
    if "kills" not in found:
        return _unfinished(found)
    done = (
        f"{found['kills']} times kill -9 of the hub under three writers, {found['kills_while_sealing']} times once more"
        f" while it sealed at its start; seed {found['seed']}"
    )
    came = (
        f"{found['acknowledged_lines']:,} lines and {found['acknowledged_records']:,} records acknowledged:"
        f" {found['lost_lines']} lines lost, {found['doubled_lines']} doubled, {found['lost_records']} records lost;"
        f" {found['unfinished_files']} kills left an unfinished file"
    )
    return done, came


def _packets(found: dict[str, Any]) -> tuple[str, str]:
    if "named" not in found:
        return _unfinished(found)
    done = (
        f"{found['trials']} times one port of eight, drawn by chance, held by `tc` to 20 to 55 % of what it sent while the"
        f" job's ranks add up over real packets; seed {found['seed']}"
    )
    return done, f"{found['named']} times that port and its job were told, and nothing else"


def _hostile(found: dict[str, Any]) -> tuple[str, str]:
    if "bodies" not in found:
        return _unfinished(found)
    done = f"{found['bodies']:,} hostile bodies, a good one after each 200; seed {found['seed']}"
    return (
        done,
        f"each 4xx, or 204 where a change left it good; each good one kept; at most {found['peak_mib']} MiB of memory in the hub",
    )


def _hostile_nccl(found: dict[str, Any]) -> tuple[str, str]:
    if "more_mib" not in found:
        return _unfinished(found)
    kinds = ("answers", "lines", "dumps")
    done = (
        f"{found['answers']:,} hostile answers of NCCL's RAS, {found['lines']:,} lines of its Inspector and"
        f" {found['dumps']:,} dumps of PyTorch's Flight Recorder, some of which would run something; seed {found['seed']}"
    )
    refused = sum(found[f"{kind}_refused"] for kind in kinds)
    return (
        done,
        f"nothing was run, and no error but the named one: {refused:,} refused, the others read as the data they are;"
        f" at most {max(1, found['more_mib'])} MiB more memory",
    )


def _alerts(found: dict[str, Any]) -> tuple[str, str]:
    if "posts" not in found:
        return _unfinished(found)
    done = (
        f"{found['incidents']:,} incidents opened and closed in {found['seconds'] / 60:.0f} min towards a receiver that answers 429, 500, 503 and"
        f" 404, hangs, resets, and takes what it says it did not; {found['kills']} times kill -9 of one of two alerts processes; seed {found['seed']}"
    )
    came = (
        f"{found['posts']:,} posts, {found['taken']:,} of them taken: the end of each incident that may have been told arrived, each in order,"
        " and none twice but for a kill at it"
    )
    return done, came


def _outage(found: dict[str, Any]) -> tuple[str, str]:
    if "waiting" not in found:
        return _unfinished(found)
    done = (
        f"the hub killed for {found['away_minutes']:g} min of the clock under {found['nodes']} simulated collectors,"
        " analyzer and alerts, three faults come and gone meanwhile, then started again"
    )
    came = (
        f"{found['waiting']:,} bodies waited ({found['waiting_bytes'] / 2**20:.0f} MiB); every node's live numbers there after"
        f" {found['fresh_seconds']:.0f} s, and never older than {found['oldest_live_seconds']:.0f} s while the backlog drained in"
        f" {found['drained_seconds'] / 60:.1f} min; of {found['acknowledged']:,} bodies {found['lost']} lost, {found['doubled']} doubled,"
        f" {found['out_of_order']} out of order, {found['left_out']} ticks left out; nobody was told of what was over"
    )
    return done, came


def _month(found: dict[str, Any]) -> tuple[str, str]:
    if "channels" not in found:
        return _unfinished(found)
    done = f"{found['days']:g} days of {found['nodes']} simulated nodes in fast time, through all of alerts; seed {found['seed']}"
    firsts = max(one["most_firsts"] for them in found["channels"].values() for one in them)
    came = (
        f"{found['incidents']:,} incidents, {found['transitions']:,} transitions, each with its message or its reason on each of"
        f" {sum(map(len, found['channels'].values()))} channels; at most {firsts} first message per incident and channel"
        " ([the whole account](month.md))"
    )
    return done, came


def _slurm(found: dict[str, Any]) -> tuple[str, str]:
    if "gpu_seconds" not in found:
        return _unfinished(found)
    states = ", ".join(
        f"{count} {state.lower()}" for state, count in sorted(found["states"].items())
    )
    done = (
        f"{found['jobs']} mixed jobs on two nodes of a real Slurm ({states}), a GPU lost under a job, a node booted;"
        f" seed {found['seed']}; load {found['load']:g}"
    )
    came = (
        f"{found['allocations']} allocations of GPUs held against Slurm's own word: {len(found['wrong'])} wrong; of {found['gpu_seconds']:,} GPU-seconds"
        f" {found['gpu_seconds_off']:,} lie beside Slurm's start or end, at most {found['worst_seconds']:.0f} s of one (a tick is 10 s)"
    )
    return done, came


def _check(found: dict[str, Any]) -> tuple[str, str]:
    if "alone" not in found:
        return _unfinished(found)
    both = {"beside a collector": found["with_collector"], "alone": found["alone"]}
    runs = sum(one["runs"] for one in both.values())
    done = (
        f"{runs} node checks by all callers beside {found['busy_processes']} busy processes, on a healthy driver and on sick ones;"
        f" seed {found['seed']}; load {found['load']:g}"
    )
    came = "; ".join(
        f"{where} {one['runs']}: {one['invented']} faults invented, {one['lost']} denied, {one['found']} found, {one['well']} well,"
        f" {one['unknown']} unknown, {one['late']} later than 5 s where that matters, the slowest {one['slowest_seconds']:.1f} s"
        for where, one in both.items()
    )
    return done, came


def _training(found: dict[str, Any]) -> tuple[str, str]:
    if "killed_seconds" not in found:
        return _unfinished(found)
    jobs = found.get("jobs_at_once", 1)
    at_once = f", {jobs} jobs at once" if jobs > 1 else ""
    done = (
        f"{found['trials']} times one rank of eight of a real PyTorch job (gloo, on CPUs) slowed by 1.3, one stopped and one killed, each"
        f" drawn by chance{at_once}; seed {found['seed']}"
    )
    came = "; ".join(
        f"{len(found[f'{what}_seconds'])} {what}, named after {median(found[f'{what}_seconds']):.0f} s, {max(found[f'{what}_seconds']):.0f} s at most"
        for what in ("slow", "stopped", "killed")
    )
    return done, f"{came}; no other rank was named (ticks of 1 s, spans of 20 s)"


def _questions(found: dict[str, Any]) -> tuple[str, str]:
    if not found.get("questions"):
        return _unfinished(found)
    asked = found["questions"]
    done = (
        f"{len(asked)} questions of somebody on call, each from a cold browser, about entities drawn by chance"
        f" (`QUESTIONS_SEED={found['questions_seed']}`), beside other work on the machine"
    )
    came = "; ".join(
        f"{question} {one['clicks']} clicks, {one['seconds']:.1f} s (a processor waited for {one['slower']:.1f} times as long)"
        for question, one in asked.items()
    )
    return done, came


def _pages(found: dict[str, Any]) -> tuple[str, str]:
    if not found.get("samples"):
        return _unfinished(found)
    samples, growth = found["samples"], found["growth"]
    done = (
        f"{samples[-1]['pages']:,} pages of a simulated fleet of {found['nodes']} nodes read in {found['minutes']:g} min by a browser that signs"
        f" in anew all the time, beside one that stays on the overview; seed {found['seed']}"
    )
    came = "; ".join(
        f"{what} {samples[0][key]:.0f} MiB after a minute, {samples[-1][key]:.0f} MiB at the end, {100 * growth[key]:+.1f} % from the middle third to the last"
        for key, what in (
            ("dashboard_mib", "the dashboard"),
            ("tab_mib", "scripts in the open tab"),
        )
    )
    return done, came


def _unfinished(found: dict[str, Any]) -> tuple[str, str]:
    said = [f"{key} {value}" for key, value in found.items() if key in {"seed", "nodes", "bodies"}]
    return ", ".join(said), "it ended before there was anything to count"


_RUNS: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "kills": _kills,
    "hostile": _hostile,
    "hostile_nccl": _hostile_nccl,
    "outage": _outage,
    "alerts": _alerts,
    "month": _month,
    "slurm": _slurm,
    "check": _check,
    "packets": _packets,
    "training": _training,
    "pages": _pages,
    "ten_questions_on_a_desk": _questions,
    "ten_questions_on_a_laptop": _questions,
    "ten_questions_from_a_phone": _questions,
}
