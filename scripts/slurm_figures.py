"""The cost of queries for Slurm's controller, for `docs/benchmarks.md`, from `benchmarks/slurm.json`."""

from collections.abc import Iterator
from typing import Any


def section(found: dict[str, Any]) -> Iterator[str]:
    """Yield one table: by the client's clock, and by the controller's own count."""
    about, took, inside = found["about"], found["milliseconds_per_question"], found["in_slurmctld"]
    yield (
        f"`{about['command']}`, commit `{about['commit'][:12]}`, {about['measured_at']}: {found['slurm']}, {found['pending']:,} pending jobs and"
        f" {found['running']} running, {found['rounds']} rounds; {about['machine']['cpus']} CPUs at a load of {found['load_average'][0]:.1f}."
        " The client's time is longer than that in `slurmctld`: it includes the command's start and its JSON."
    )
    yield ""
    yield "| query | ms at the client, median (longest) | ms in `slurmctld`, mean |"
    yield "|---|---|---|"
    for name in ("jobs", "nodes"):
        inner = inside[name]["mean_microseconds"] / 1000
        yield f"| {name} | {took[name]['median']:,} ({took[name]['longest']:,}) | {inner:.1f} |"
    partitions = inside["partitions"]["mean_microseconds"] / 1000
    yield ""
    yield (
        f"A round is two queries, once a minute by default. For `slurmctld` it is three requests, since Slurm's commands also ask for partitions ({partitions:.1f} ms)."
        f" The answer is {found['json_mib']:g} MiB of JSON; a round takes {found['processor_seconds_a_round_of_who_asks']:g} s of"
        f" CPU time and {found['peak_mib_of_who_asks']} MiB on the machine that asks. The first round sent {found['records_of_the_first_round']:,} records,"
        f" the second {found['records_of_the_second_round']}, since nothing had changed."
    )
