"""Whether a note about a job's work is news: one that came and went is not told again of the same job."""

from gpuvigil.model import Finding, Severity

from ..window.window import Window


def is_news(window: Window, note: Finding) -> bool:
    """False for a note that was told of the same ranks in the same job, and is over.

    Data that differ make a rank slow for some minutes, and again an hour later. What got worse is no note.
    """
    if note.severity is not Severity.INFO:
        return True
    alike = [it for it in window.stood if it.fingerprint == note.fingerprint]
    # What has come back stands beside what is remembered of it from when it was over.
    if any(it.resolved_at is None for it in alike):
        return True
    held = window.held(next(iter(note.members), note.subject))
    return not any(
        it.resolved_at is not None and it.resolved_at > held[0].started_at and not it.covered_by
        for it in (alike if held else ())
    )
