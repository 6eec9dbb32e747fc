"""A webhook in Alertmanager's format, version 4.

Format: Alertmanager, "Webhook receiver" (`<webhook_config>`). One incident is one alert in a group
of its own, whose fingerprint and group key stay the same when it fires, changes and ends.
"""

from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.config import WebhookSettings

from ..message import Message, clean
from .post import Posting

# What Alertmanager writes for "not over yet": Go's zero time.
NO_END = "0001-01-01T00:00:00Z"


def webhook(settings: WebhookSettings, external_url: str) -> Posting:
    """The channel to one receiver; ConfigError when its URL cannot be one."""
    return Posting(settings, lambda message: payload(message, settings.name, external_url))


def payload(message: Message, receiver: str, external_url: str) -> dict[str, Any]:
    """The JSON value that is posted."""
    status = "firing" if message.firing else "resolved"
    labels = _labels(message)
    group = {name: labels[name] for name in ("alertname", "cluster", "node")}
    annotations = {
        "summary": message.summary,
        "description": message.text,
        "where": message.where,
        "since": message.since,
        "impact": message.impact,
        "evidence": message.evidence,
        "action": message.action,
        "source": message.source,
        "notice": message.notice,
        "incident_url": message.incident_link,
    }
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": to_text(message.starts_at),
        "endsAt": NO_END if message.ends_at is None else to_text(message.ends_at),
        "generatorURL": message.link,
        "fingerprint": message.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{incident="{message.incident}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": external_url,
        "alerts": [alert],
    }


def _labels(message: Message) -> dict[str, str]:
    subject = message.subject
    labels = {
        "alertname": message.fault,
        "severity": message.severity.value,
        "cluster": subject.cluster,
        "node": subject.node,
        "gpu": subject.gpu,
        "device": subject.device,
        "port": subject.port,
        "simulated": "true" if message.simulated else None,
    }
    return {name: clean(value) for name, value in labels.items() if value}
