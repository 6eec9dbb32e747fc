"""How soon people are told, the time of a start, and memory at rest: for `docs/benchmarks.md`."""

from collections.abc import Iterator
from typing import Any

from gpuvigil.config import AnalyzerSettings

LATENCIES = {
    "xid_to_webhook": ("Injected Xid 79 to webhook received", 5),
    "webhook_to_page": ("Incident (its webhook received) to the text on the page", 3),
}


def latencies(result: dict[str, Any]) -> Iterator[str]:
    """Yield how long it takes until people are notified."""
    about, machine = result["about"], result["about"]["machine"]
    yield f"`{about['command']}`, commit `{about['commit'][:12]}`, {about['measured_at']}, Python {about['python']}, {machine['cpus']} CPUs,"
    yield f"{machine['memory_gib']} GiB memory, {machine['system']}, {'an' if machine['nvidia_gpu'] else 'no'} NVIDIA GPU."
    yield f"A simulated cluster of 16 nodes with 8 GPUs (seed {about['simulator_seed']}), every service and Chromium on this one machine."
    yield ""
    yield "| what | runs | median s | best s | worst s | bar s |"
    yield "|---|---|---|---|---|---|"
    for key, (words, bar) in LATENCIES.items():
        seconds = result[key]["seconds"]
        cells = " | ".join(f"{seconds[name]:.2f}" for name in ("median", "best", "worst"))
        yield f"| {words} | {result[key]['runs']} | {cells} | {bar} |"
    yield ""
    yield "The first is timed from the start of `gpuvigil inject`, so it includes the start of that command."


def to_slack(result: dict[str, Any]) -> Iterator[str]:
    """Yield how long it takes until Slack has the payload."""
    about, found = result["about"], result["xid_to_slack"]
    seconds, load = found["seconds"], about["load"]
    median, worst = seconds["median"], seconds["worst"]
    yield f"From an Xid 79 to the payload that Slack receives, {found['runs']} GPUs one after the other (`{about['command']}`,"
    yield f"commit `{about['commit'][:12]}`, {about['measured_at']}, load {load['before']} to {load['after']} on {about['machine']['cpus']} CPUs):"
    yield f"median {median:.2f} s (bar 2 s, {'holds' if median <= 2 else 'missed'}), worst {worst:.2f} s (bar 5 s, {'holds' if worst <= 5 else 'missed'})."


def of_ports(result: dict[str, Any]) -> Iterator[str]:
    """Yield the time from a lost link to the webhook, and the messages after a lost leaf."""
    about, found, leaf = result["about"], result["port_down_to_webhook"], result["leaf"]
    seconds, load = found["seconds"], about["load"]
    median, worst = seconds["median"], seconds["worst"]
    one = leaf["messages"] == leaf["critical"] == 1
    yield f"From a port that loses its link to the webhook, {found['runs']} ports one after the other on {leaf['nodes']} nodes with collectors of their own,"
    yield f"all settings as shipped (`{about['command']}`, commit `{about['commit'][:12]}`, {about['measured_at']}, load {load['before']} to {load['after']} on {about['machine']['cpus']} CPUs):"
    yield f"median {median:.2f} s (bar 2 s, {'holds' if median <= 2 else 'missed'}), worst {worst:.2f} s (bar 5 s, {'holds' if worst <= 5 else 'missed'}):"
    yield f"no job runs on these nodes, so a port has {AnalyzerSettings().port_down_seconds:.0f} s to come back (`analyzer.port_down_seconds`), and the analyzer's next pass reports it."
    yield f"When all ports of the {leaf['nodes']} nodes went down at once, as when their leaf fails, the messages of the next minute were {leaf['messages']}, {leaf['critical']} of them critical, after {leaf['seconds']:.0f} s (bar: one, critical, within 60 s, {'holds' if one and leaf['seconds'] <= 60 else 'missed'})."


def startup(result: dict[str, Any]) -> Iterator[str]:
    """Yield what `make up` spends its time on."""
    first, restart = result["first_start"], result["restart"]
    seconds = restart["seconds_to_page"]
    yield f"From an empty clone to the first page in Chromium: {first['seconds_to_page']:.1f} s, of which the environment"
    yield f"(packages from a near mirror) takes {first['seconds_to_url'] - first['steps']['url_printed']:.1f} s. A restart: median"
    yield f"{seconds['median']:.2f} s, worst {seconds['worst']:.2f} s of {restart['runs']} (bar: 10 s)."
    yield ""
    yield "| part, at a restart | started after s | ready after s |"
    yield "|---|---|---|"
    steps = restart["steps"]
    for part, ready in steps["ready"].items():
        yield f"| {part} | {steps['started'][part]:.2f} | {ready:.2f} |"
    yield f"| the URL is printed | | {steps['url_printed']:.2f} |"


def memory(result: dict[str, Any]) -> Iterator[str]:
    """Yield the memory of every process."""
    yield "Proportional set size (PSS) of every process 30 s after the page was opened, one page open; CPU time since its start."
    yield ""
    yield from processes(result["processes"])
    yield ""
    yield "The same on a machine with eight GPUs (the fake NVML library of the tests), without simulation, 30 s after the start, no page open."
    yield "`collect` and `read`, its reader, are what a node runs."
    yield ""
    yield from processes(result["processes_with_gpus"])


def processes(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a row per process."""
    yield "| process | PSS MiB | CPU s |"
    yield "|---|---|---|"
    for process in found:
        yield f"| `{process['command']}` | {process['pss_mib']} | {process['cpu_seconds']:.1f} |"
