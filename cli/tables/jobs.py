"""`gpuvigil jobs`: what bounds each job, its pace, what it would lose now, and what failures cost."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from accounting.cost.money import Prices
from dashboard.lists.fleet_now import FleetNow
from dashboard.lists.job_board import board, failures
from dashboard.lists.job_list import grid, missing
from dashboard.lists.job_losses import Reliability, lost_within, sentence
from dashboard.lists.jobs import Fleet
from dashboard.lists.not_reporting import with_silence
from dashboard.lists.table import Grid, length
from gpuvigil.hub_client import Hub
from gpuvigil.numbers_in_words import counted


def fetch(hub: Hub, moment: FleetNow, lately: timedelta, prices: Prices) -> Grid:
    """Return the table of jobs; HubUnavailable, HubRefused or StoreError if hub or store do not answer."""
    shown = {one.name for one in moment.clusters}
    fleet = Fleet.of(moment)
    found = board(hub, fleet, prices, lately)
    known = all(one.strip.holders_known for one in moment.clusters)
    table = grid(
        with_silence(found.running, moment.view.clusters),
        [one for one in found.over if one.cluster in shown],
        found.now,
        prices,
        holders_known=known,
    )
    here = [one for one in failures(hub, fleet) if one.cluster in shown]
    less = missing({name: at for name, at in found.over_from.items() if name in shown})
    lines = (line for one in here for line in _lines(one))
    return replace(table, notes=[*table.notes, *filter(None, (less,)), *lines])


def _lines(found: Reliability) -> Sequence[str]:
    """Say how often failures end jobs, how often to write checkpoints, and what failures cost."""
    sizes = [
        f"{counted(one.nodes, 'node')}: fails every {length(one.mttf)}, best interval"
        f" {length(one.interval)}, ETTR {100.0 * one.ettr:.0f} %"
        for one in found.sizes
        if one.mttf is not None and one.interval is not None and one.ettr is not None
    ]
    causes = [
        f"{one.why.value}: {counted(one.jobs, 'job')}, {'at most ' if one.at_most else ''}"
        f"{one.gpu_hours:,.1f} GPU-hours"
        for one in found.causes
    ]
    said = [sentence(found)]
    said += [f"Jobs on {'; '.join(sizes)}."] if sizes else []
    within = lost_within(found)
    if causes:
        return [*said, f"Lost {within} by {'; '.join(causes)}."]
    return [*said, f"No job was ended by a failure {within}."] if found.lost_from else said
