"""The cost of queries for Slurm's controller, for `docs/benchmarks.md`, from `benchmarks/slurm.json`."""

from collections.abc import Iterator
from typing import Any


def section(found: dict[str, Any]) -> Iterator[str]:
    """Yield one table: by the client's clock, and by the controller's own count."""
    about, took, inside = found["about"], found["milliseconds_per_question"], found["in_slurmctld"]
    yield (
        f"`{about['command']}`, commit `{about['commit'][:12]}`, {about['measured_at']}: {found['slurm']}, {found['pending']:,} jobs that wait and"
        f" {found['running']} that run, {found['rounds']} rounds; {about['machine']['cpus']} CPUs at a load of {found['load_average'][0]:.1f}."
        " By the client's clock a question takes longer than in `slurmctld`: the command's start and its JSON are in it."
    )
    yield ""
    yield "| question | ms by the client's clock, median (longest) | ms in `slurmctld`, mean |"
    yield "|---|---|---|"
    for name in ("jobs", "nodes"):
        inner = inside[name]["mean_microseconds"] / 1000
        yield f"| {name} | {took[name]['median']:,} ({took[name]['longest']:,}) | {inner:.1f} |"
    partitions = inside["partitions"]["mean_microseconds"] / 1000
    yield ""
    yield (
        f"A round is two questions, a minute apart by default, and to `slurmctld` three requests, since Slurm's commands also ask for partitions ({partitions:.1f} ms):"
        f" three requests a minute. The answer is {found['json_mib']:g} MiB of JSON; a round takes {found['processor_seconds_a_round_of_who_asks']:g} s of"
        f" a processor and {found['peak_mib_of_who_asks']} MiB on the machine that asks. {found['records_of_the_first_round']:,} records were told in the"
        f" first round, {found['records_of_the_second_round']} in the second, when nothing had changed."
    )
