"""A webhook in Alertmanager's format, version 4, signed where both sides know a secret.

Format: Alertmanager, "Webhook receiver" (`<webhook_config>`). One incident is one alert in a group
of its own, whose fingerprint and group key stay the same when it fires, changes and ends.
"""

import hashlib
import hmac
import time
from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.config import WebhookSettings

from ..messages.message import Message, clean, listed
from .address import secret_of
from .http_post import Post, Posting

# What Alertmanager writes for "not over yet": Go's zero time.
NO_END = "0001-01-01T00:00:00Z"


# The signature is over the time, a dot and the body, so that an old post cannot be sent again.
SIGNATURE, TIME = "X-Gpuvigil-Signature", "X-Gpuvigil-Time"


def webhook(settings: WebhookSettings, external_url: str) -> Posting:
    """Return the channel to one receiver; ConfigError for an invalid URL or a missing secret."""
    what = f"secret of the channel {settings.name}"

    def sign(body: bytes) -> dict[str, str]:
        secret = secret_of(settings.secret_file, settings.secret_variable, what)
        return signature(body, secret, int(time.time()))

    signed = settings.secret_file is not None or bool(settings.secret_variable)
    if signed:
        sign(b"")
    return Posting(
        settings,
        lambda message: [Post(payload=payload(message, settings.name, external_url))],
        sign=sign if signed else None,
    )


def signature(body: bytes, secret: str, at_seconds: int) -> dict[str, str]:
    """Return the headers with the time of signing, and the signature that proves by whom."""
    text = f"{at_seconds}.".encode() + body
    digest = hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
    return {TIME: str(at_seconds), SIGNATURE: f"sha256={digest}"}


def payload(message: Message, receiver: str, external_url: str) -> dict[str, Any]:
    """Return the JSON value to post."""
    status = "firing" if message.firing else "resolved"
    labels = labels_of(message)
    group = {name: labels[name] for name in ("alertname", "cluster", "node")}
    annotations = annotations_of(message)
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


def annotations_of(message: Message) -> dict[str, str]:
    """Return the texts for people, by the question that each answers."""
    of_jobs = {
        "owners": listed(message.owners),
        "accounts": listed(message.accounts),
        "partitions": listed(message.partitions),
        "runbook_url": message.runbook or "",
    }
    return {
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
        **{name: value for name, value in of_jobs.items() if value},
    }


def labels_of(message: Message) -> dict[str, str]:
    """Return the labels that routes and silences match."""
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
