"""The report as PDF, rendered from its HTML; nothing is fetched."""

from typing import NoReturn

from gpuvigil.errors import ConfigError


def pdf(document: str) -> bytes:
    """Return the PDF of an HTML report; raise ConfigError when WeasyPrint or Pango is missing."""
    try:
        from weasyprint import HTML  # noqa: PLC0415 - an extra that most reports do not need
    except (ImportError, OSError) as error:
        raise ConfigError(
            "a PDF needs WeasyPrint (in a checkout, pip install '.[pdf]') and the system's Pango"
            " (apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0):"
            f" {_reason(error)}"
        ) from None
    drawn: bytes = HTML(string=document, url_fetcher=_refuse, base_url=None).write_pdf()
    return drawn


def _refuse(url: str, *_: object, **__: object) -> NoReturn:
    raise ValueError(f"a report fetches nothing, so not {url}")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
