"""A job's ranks on real packets: the one whose port lets less through is named, and nobody else."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packets import is_named, is_possible, rest, running, told_of

pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.alone, pytest.mark.timeout(600)]


def test_the_port_that_slows_a_job_down_is_named_with_the_job(
    tmp_path: Path, library: Path, needs: Callable[[str, str], str]
) -> None:
    needs("tc", "apt-get install iproute2")
    assert is_possible()
    with running(tmp_path, library, 8) as (job, watched):
        first, second = random.Random(7).sample(job.nodes, 2)
        found = told_of(job, watched, first, 0.4)
        assert is_named(found, first), [(it.subject.key, it.evidence) for it in found]
        (told,) = found
        assert told.title == "Traffic shaper on the node slows a network port"
        rest()
        found = told_of(job, watched, second, 0.4, at_leaf=True)
        assert is_named(found, second), [(it.subject.key, it.evidence) for it in found]
        (told,) = found
        assert told.title == ("Network link to the switch is too slow for its traffic")
