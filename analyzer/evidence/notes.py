"""Whether an info about a job's work is news: one that came and went is not repeated for the same job."""

from gpuvigil.model import Finding, Severity

from ..window.window import Window


def is_news(window: Window, note: Finding) -> bool:
    """Return False for an info that was told about the same ranks in the same job, and is over.

    Uneven data make a rank slow for some minutes, and again an hour later. A graver finding is
    always news.
    """
    if note.severity is not Severity.INFO:
        return True
    alike = [it for it in window.recent_incidents if it.fingerprint == note.fingerprint]
    # An incident that has come back stands beside the memory of its earlier end.
    if any(it.resolved_at is None for it in alike):
        return True
    held = window.held(next(iter(note.members), note.subject))
    return not any(
        it.resolved_at is not None and it.resolved_at > held[0].started_at and not it.covered_by
        for it in (alike if held else ())
    )
