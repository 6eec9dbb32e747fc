"""The callers of a node check, and what an exit code means to each.

  nagios        0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN; first line with performance data
                (Monitoring Plugins, "Development Guidelines")
  slurm-health  Slurm's HealthCheckProgram: its exit code means nothing, so it is always 0
  slurm-prolog  Slurm's Prolog and Epilog: any exit code but 0 drains the node, and a prolog's
  slurm-epilog  requeues the job (Slurm, "Prolog and Epilog Guide"); so 1 only for what is certain,
                and only on a node that is out of service already or may be by the fleet's budget
  npd           a custom plugin of Kubernetes' node-problem-detector: 0 OK, 1 problem, 2 unknown, and
                a message of at most 80 characters (its default `max_output_length`)

For all of them, only a certain finding is critical (`findings_text.result`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.faults.gpu_states import HUNG
from gpuvigil.model import Finding, Severity

from . import findings_text
from .facts import Facts

NPD_LENGTH = 80
_NPD_UNKNOWN = 2
# Slurm must wait 5 s at most, and it waits for more than this process.
SLURM_SECONDS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The lines to print, and the exit code."""

    lines: tuple[str, ...]
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A kind of caller: how findings are presented, and the exit code when the check itself fails."""

    present: Callable[[Facts, Sequence[Finding]], Outcome]
    broken: int  # for a check that failed itself, was used wrongly, or ran out of time
    longest_seconds: float | None = None
    # Exit code 1 takes the node out of service, so it is returned only for a node that is out.
    gate: bool = False

    def broken_outcome(self, why: str) -> Outcome:
        """Return the outcome for when the check itself failed."""
        return Outcome(lines=(f"gpuvigil check: {why}",), code=self.broken)


_PEOPLES_CODES = {"critical": 4, "warning": 3, findings_text.UNKNOWN: 1}
_NAGIOS_CODES = {"critical": 2, "warning": 1, findings_text.UNKNOWN: 3}


def _people(facts: Facts, found: Sequence[Finding]) -> Outcome:
    lines = [findings_text.line(facts, finding) for finding in found]
    lines += [*findings_text.unread(facts), findings_text.summary(facts, found)]
    return Outcome(
        lines=tuple(lines), code=_PEOPLES_CODES.get(findings_text.result(facts, found), 0)
    )


def _json(facts: Facts, found: Sequence[Finding]) -> Outcome:
    return Outcome(lines=(findings_text.as_json(facts, found),), code=_people(facts, found).code)


def _nagios(facts: Facts, found: Sequence[Finding]) -> Outcome:
    result = findings_text.result(facts, found)
    code = _NAGIOS_CODES.get(result, 0)
    word = result.upper() if code else "OK"
    first = (
        f"{_bare(findings_text.claim(facts, found[0]))} ({findings_text.counts(found)})"
        if found
        else ""
    )
    head = f"GPUVIGIL {word} - {first or _bare(findings_text.summary(facts, found))}"
    lines = [f"{head} | {_performance(facts, found)}"]
    lines += [_bare(findings_text.line(facts, finding)) for finding in found]
    return Outcome(lines=(*lines, *map(_bare, findings_text.unread(facts))), code=code)


def _performance(facts: Facts, found: Sequence[Finding]) -> str:
    """Return `label=value[unit];warn;crit;min;max`, as the guidelines have it."""
    answered = sum(gpu.values is not None for gpu in facts.gpus.values())
    critical = sum(finding.severity is Severity.CRITICAL for finding in found)
    warning = sum(finding.severity is Severity.WARNING for finding in found)
    return (
        f"gpus={answered};;;0; critical={critical};;;0; warning={warning};;;0;"
        f" time={facts.waited_seconds:.3f}s;;;0;"
    )


def _bare(text: str) -> str:
    """Return the text without the bar that begins performance data."""
    return text.replace("|", "/")


def _slurm_health(facts: Facts, found: Sequence[Finding]) -> Outcome:
    return Outcome(lines=_people(facts, found).lines, code=0)


def _slurm_gate(facts: Facts, found: Sequence[Finding]) -> Outcome:
    lines = [findings_text.line(facts, finding) for finding in found]
    lines += findings_text.unread(facts)
    return Outcome(lines=tuple(lines), code=int(any(map(stops_jobs, found))))


def stops_jobs(finding: Finding) -> bool:
    """Return whether a job must not start: the finding is critical, certain and not a mere silence.

    A driver that does not answer may be waking up, and waiting for it must not fail a job.
    """
    return drains(finding) and finding.fault not in HUNG


def drains(finding: Finding) -> bool:
    """Return whether the node must take no more jobs: the finding is critical and certain."""
    return finding.severity is Severity.CRITICAL and finding.certain


def _npd(facts: Facts, found: Sequence[Finding]) -> Outcome:
    problems = [finding for finding in found if finding.severity is Severity.CRITICAL]
    certain = [finding for finding in problems if finding.certain]
    problems = certain or problems
    if not problems:
        code = _NPD_UNKNOWN if findings_text.result(facts, found) == findings_text.UNKNOWN else 0
        return Outcome(
            lines=(shortened(findings_text.summary(facts, found), NPD_LENGTH),), code=code
        )
    more = f" (+{len(problems) - 1})" if len(problems) > 1 else ""
    text = f"{findings_text.short_place(facts, problems[0])}: {problems[0].title}"
    line = shortened(text, NPD_LENGTH - len(more)) + more
    return Outcome(lines=(line,), code=1 if certain else _NPD_UNKNOWN)


def shortened(text: str, length: int) -> str:
    """Return at most `length` characters of the text, in ASCII, since others count bytes."""
    plain = text.encode("ascii", "replace").decode()
    return plain if len(plain) <= length else plain[: length - 3] + "..."


# The caller is a person unless `--as` says otherwise.
PERSON = Caller(present=_people, broken=1)
PROGRAM = Caller(present=_json, broken=1)
CALLERS: Mapping[str, Caller] = {
    "nagios": Caller(present=_nagios, broken=3),
    "slurm-health": Caller(present=_slurm_health, broken=0, longest_seconds=SLURM_SECONDS),
    "slurm-prolog": Caller(present=_slurm_gate, broken=0, longest_seconds=SLURM_SECONDS, gate=True),
    "slurm-epilog": Caller(present=_slurm_gate, broken=0, longest_seconds=SLURM_SECONDS, gate=True),
    # node-problem-detector waits 5 s for its plugins.
    "npd": Caller(present=_npd, broken=_NPD_UNKNOWN, longest_seconds=SLURM_SECONDS),
}
