"""A Slack channel, through a bot: one message per incident, which is updated in place.

Formats: docs.slack.dev, `chat.postMessage` and `chat.update`, "Rate limits" (one message a second
in a channel). An update makes no sound, so what is worth one is posted in the message's thread, and
the worst also in the channel. Slack answers 200 also to what it does not accept; `error` says why.
"""

from dataclasses import replace

from gpuvigil.config import SlackSettings

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import Message
from .address import in_ascii, secret_of
from .http_post import Answer, Post, Posting, outcome_of
from .shared_parts import headline
from .slack import LONGEST_TEXT, escaped, mentioned, payload, undeliverable_reason

PACE = Pace(burst=1, per_second=1.0)

_TOKEN = "the bot's token is not taken: put a new one into token_file"
_PLACE = "invite the bot to the channel, and check the channel's id"
# Errors that somebody can fix while the message waits; any other is the message's fault.
_MENDABLE = {
    "invalid_auth": _TOKEN,
    "not_authed": _TOKEN,
    "account_inactive": _TOKEN,
    "token_revoked": _TOKEN,
    "token_expired": _TOKEN,
    "missing_scope": "the bot needs the scope chat:write",
    "channel_not_found": _PLACE,
    "not_in_channel": _PLACE,
    "is_archived": "the channel is archived: unarchive it, or name another",
    "restricted_action": "the workspace does not let the bot post there: ask an administrator",
}
_LATER = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable"}
)
# The message to be updated is gone, or may not be changed any more.
_LOST = frozenset(
    {"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"}
)


class SlackBot(Posting):
    """The channel to one conversation; messages to be updated are found by their `ts`."""

    def __init__(self, settings: SlackSettings) -> None:
        api = replace(settings, url=settings.api_url, url_file=None, url_variable="")
        super().__init__(api, self._posts, judge=judge, pace=PACE, reads=True)
        # Updates disturb nobody.
        owners = settings.mentions_file is not None
        self.profile = replace(self.profile, every_change=True, owners=owners)
        self._bot = settings
        self._token()

    def deliver(self, message: Message) -> Outcome:
        nobody = undeliverable_reason(message, self._bot)
        if nobody is not None:
            return nobody
        outcome = super().deliver(message)
        if message.receipt is None:
            return outcome
        if isinstance(outcome, Refused) and outcome.lost:
            return super().deliver(replace(message, receipt=None))
        # The reply's own `ts` is of no use: the receipt stays that of the incident's message.
        return Delivered(receipt=message.receipt) if isinstance(outcome, Delivered) else outcome

    def _posts(self, message: Message) -> list[Post]:
        channel = {"channel": self._bot.channel}
        authorization = {"Authorization": f"Bearer {self._token()}"}
        whole = {**channel, **payload(message, mentioned(message, self._bot))}
        if message.receipt is None:
            return [Post(payload=whole, path="/chat.postMessage", headers=authorization)]
        reply = {
            **channel,
            "thread_ts": message.receipt,
            "text": escaped(headline(message), LONGEST_TEXT),
            "mrkdwn": False,
            "unfurl_links": False,
            "reply_broadcast": message.loud,
        }
        update = Post(
            payload={**whole, "ts": message.receipt}, path="/chat.update", headers=authorization
        )
        said = Post(payload=reply, path="/chat.postMessage", headers=authorization)
        # Followers of the thread are notified of each reply in it.
        return [update, said] if message.news else [update]

    def _token(self) -> str:
        what = f"bot's token of the channel {self._bot.name}"
        return in_ascii(secret_of(self._bot.token_file, self._bot.token_variable, what), what)


def judge(answer: Answer) -> Outcome:
    """Return the outcome of Slack's answer: by its body, and by its status where that says nothing."""
    outcome, said = outcome_of(answer), answer.json_body
    if isinstance(outcome, Delivered) and said.get("ok") is True:
        ts = said.get("ts")
        return Delivered(receipt=ts if isinstance(ts, str) else None)
    error = said.get("error")
    if not isinstance(error, str) or not error.replace("_", "").isalnum() or len(error) > 60:
        if isinstance(outcome, Delivered):
            return Retry(reason=f"{answer.host} answered without a word", perhaps_received=True)
        return outcome
    reason = f"{answer.host} answered {answer.status} {error}"
    if error in _MENDABLE:
        return Retry(reason=f"{reason}: {_MENDABLE[error]}")
    if error in _LATER or isinstance(outcome, Retry):
        after = outcome.after_seconds if isinstance(outcome, Retry) else None
        return Retry(reason=reason, after_seconds=after)
    return Refused(reason=reason, lost=error in _LOST)
