"""Endpoints that their operators have retired, each with what to use instead.

Sources: Microsoft, "Retirement of Office 365 connectors within Microsoft Teams"; PagerDuty, "Events
API v1"; Alertmanager's changelog, 0.27 (API v1 removed); Discord, "API reference" (discordapp.com);
Slack, "Legacy custom integrations"; Atlassian, "Opsgenie end of support".
"""

import re

_RETIRED: tuple[tuple[str, str], ...] = (
    (
        r"^(outlook\.office(365)?\.com/webhook|[^/]*\.?webhook\.office\.com/)",
        "Microsoft has switched off the connectors of Office 365; make a workflow 'Post to a channel"
        " when a webhook request is received' in Teams and use its address",
    ),
    (
        r"^events\.pagerduty\.com/generic/",
        "this is PagerDuty's Events API v1; use https://events.pagerduty.com/v2/enqueue with the"
        " routing key of an Events API v2 integration",
    ),
    (
        r"/api/v1/alerts/?$",
        "Alertmanager has removed its API v1; give the address before /api, version 2 is used",
    ),
    (r"^([^/]*\.)?discordapp\.com/", "Discord has moved; write discord.com in the address"),
    (
        r"^[^/]*\.slack\.com/services/hooks/incoming-webhook",
        "Slack has given up custom integrations; make an app with an incoming webhook",
    ),
    (
        r"^api(\.eu)?\.opsgenie\.com/",
        "Atlassian ends Opsgenie, its API answers until 5 April 2027 only; use what replaces it",
    ),
)


def retired(host: str, path: str) -> str | None:
    """Return why nothing can be sent to an address any more; None if it is not known as retired."""
    address = f"{host.lower()}{path}"
    return next((why for pattern, why in _RETIRED if re.search(pattern, address)), None)
