"""The alerting service: it tells people about transitions, or records why not.

One thread claims transitions and stores what was decided; one claims due notices and hands them to
a worker per channel. All state is in the hub, so this process may end at any moment.
"""

import secrets
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from accounting.cost.money import Prices
from gpuvigil import __version__
from gpuvigil.clock import Clock, SystemClock, micros, to_text
from gpuvigil.config import Config
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.lifecycle import State
from gpuvigil.log import Log
from gpuvigil.model import UNREADABLE, Incident, Record, RecordKind, Transition
from gpuvigil.web.metrics_page import Exporter
from gpuvigil.web.signed_links import seal

from .channels import configured
from .channels.dead_man import dead_man
from .decisions.decide import decide
from .delivery.channels_added import notify_new_channels
from .delivery.dispatcher import Dispatcher, hand_out, notices_of
from .delivery.exporter import exposition
from .delivery.hub_access import CLAIM_LIMIT, LEASE_SECONDS, POLL_SECONDS, Context
from .delivery.resend import Resend, Resending
from .delivery.self_check import SelfChecker, call_dead_man
from .messages.cost import REFRESH_SECONDS
from .routing.case import ChannelProfile, writes_to_owners
from .routing.notice import Notice, NoticeState, Verdict
from .routing.situation import Situation, SituationReader

PULSE_SECONDS = 10.0
# A stop waits this long for attempts under way; the rest is durable and goes out later.
DRAIN_SECONDS = 4.0

# A claimed record, and its transition; None when it cannot be read.
_Step = tuple[Record, Transition | None]


def run(config: Config, _: Namespace, stop: threading.Event) -> None:
    """Start a thread per loop and a worker per channel, and keep the pulse until `stop`."""
    clock: Clock = SystemClock()
    context = Context(
        connect=service_hubs(config.hub),
        owner=f"alerts-{socket.gethostname()}-{secrets.token_hex(4)}",
        settings=config.alerts,
        clock=clock,
        stop=stop,
        log=Log("alerts"),
        seal=seal(config.alerts),
        prices=Prices(settings=config.cost),
    )
    dispatchers = {c.profile.name: Dispatcher(c, context) for c in configured(config.alerts)}
    steps = {**_steps(context, dispatchers), **_idle_steps(config, context, dispatchers)}
    with _metrics(context, list(dispatchers.values())):
        threads = [
            threading.Thread(target=context.loop, args=item, name=item[0], daemon=True)
            for item in steps.items()
        ]
        for thread in threads:
            thread.start()
        context.log.info("started", channels=", ".join(dispatchers) or "none", version=__version__)
        _keep_pulse(context, list(dispatchers.values()))
        deadline = clock.monotonic() + DRAIN_SECONDS
        for thread in threads:
            thread.join(max(deadline - clock.monotonic(), 0.0))
    context.log.info("stopped")


def _steps(
    context: Context, dispatchers: Mapping[str, Dispatcher]
) -> dict[str, Callable[[], None]]:
    """Return the step that each thread repeats, by the thread's name."""
    settings = context.settings
    profiles = [dispatcher.channel.profile for dispatcher in dispatchers.values()]
    deciding, claiming = context.connect(), context.connect()
    situations = SituationReader(deciding, settings)
    self_checker = SelfChecker(context, list(dispatchers.values()))
    steps: dict[str, Callable[[], None]] = {
        "decide": lambda: decide_transitions(deciding, context, profiles, situations),
        "claim": lambda: hand_out(claiming, context, dispatchers),
        "watch": self_checker.step,
    }
    if profiles:
        steps["new channels"] = _once_at_start(context, profiles)
    for name, dispatcher in dispatchers.items():
        steps[f"channel {name}"] = dispatcher.step
        if isinstance(dispatcher.channel, Resending):
            steps[f"resend {name}"] = Resend(dispatcher.channel, context).step
    if context.prices:
        pricing = context.connect()
        steps["models"] = lambda: refresh_models(pricing, context)
    if settings.dead_man_url or settings.dead_man_url_file:
        ping = dead_man(settings)
        steps["dead man"] = lambda: call_dead_man(ping, context, self_checker)
    return steps


def _once_at_start(context: Context, profiles: Sequence[ChannelProfile]) -> Callable[[], None]:
    """Return a step that tells new channels what is open, then waits: a process keeps its channels."""
    hub = context.connect()
    situations = SituationReader(hub, context.settings)

    def step() -> None:
        notify_new_channels(hub, context, profiles, situations)
        context.stop.wait()

    return step


def refresh_models(hub: Hub, context: Context) -> None:
    """Look up the models of GPUs, on which their cost depends, and wait."""
    context.models.refresh(hub)
    context.clock.wait(context.stop, REFRESH_SECONDS)


def _idle_steps(
    config: Config, context: Context, dispatchers: Mapping[str, Dispatcher]
) -> dict[str, Callable[[], None]]:
    """Return the step that looks at idle GPUs, if a channel writes to owners."""
    if not writes_to_owners([dispatcher.channel.profile for dispatcher in dispatchers.values()]):
        return {}
    from gpuvigil.store.configured import hubs  # noqa: PLC0415 - only who asks the store needs Arrow

    from .idle.idle_job import IdleWatch  # noqa: PLC0415 - as above

    return {"idle": IdleWatch(context, hubs(config), config.analyzer.idle_below_percent).step}


@contextmanager
def _metrics(context: Context, dispatchers: Sequence[Dispatcher]) -> Iterator[None]:
    """Serve `/metrics` where a port is set."""
    settings = context.settings
    if settings.metrics_port < 0:
        yield
        return

    def text() -> str:
        return exposition([one.pulse() for one in dispatchers], context.tally.counts())

    with Exporter(settings.metrics_listen, settings.metrics_port, text, "alerts"):
        yield


def decide_transitions(
    hub: Hub, context: Context, profiles: Sequence[ChannelProfile], situations: SituationReader
) -> None:
    """Claim transitions, and keep a decision for each in the commit that ends its claim."""
    claimed = hub.claim(
        RecordKind.TRANSITION,
        context.owner,
        lease_seconds=LEASE_SECONDS,
        limit=CLAIM_LIMIT,
        wait_seconds=POLL_SECONDS,
    )
    if not claimed:
        return
    situation = situations.read(context.clock.monotonic())

    def finish(steps: Sequence[_Step]) -> None:
        notices = _decided(hub, context, profiles, situation, steps)
        records = [notice.to_record() for notice in notices]
        hub.finish(RecordKind.TRANSITION, context.owner, [one.id for one, _ in steps], records)
        context.tally.add(notices)
        for notice in notices:
            context.log.info(
                "decided",
                notice=notice.id,
                verdict=notice.verdict.name.lower(),
                state=notice.state.value,
            )

    read = [(record, _read(record, context)) for record in claimed]
    in_order = sorted(read, key=lambda step: step[1].number if step[1] else 0)
    context.in_parts(in_order, finish, lambda step: step[0].id)
    context.gather(len(claimed))


def _decided(
    hub: Hub,
    context: Context,
    profiles: Sequence[ChannelProfile],
    situation: Situation,
    steps: Sequence[_Step],
) -> list[Notice]:
    """Decide transitions and return their notices; one that cannot be read gets one that is not sent."""
    notices: dict[str, Notice] = {}
    for record, transition in steps:
        if transition is None:
            unreadable = _unreadable(record, context.clock.now())
            notices[unreadable.id] = unreadable
            continue
        incident = transition.incident
        fresh = {id_: notice for id_, notice in notices.items() if notice.incident == incident}
        earlier = {**notices_of(hub, incident), **fresh}.values()
        now = context.clock.now()
        for notice in decide(transition, profiles, list(earlier), now, context.settings, situation):
            notices[notice.id] = notice
    return list(notices.values())


def _read(record: Record, context: Context) -> Transition | None:
    """Return the transition in a record; None when this version does not understand it."""
    try:
        transition = Transition.from_record(record)
        Incident.from_record(Record.from_json(transition.snapshot))
        State(transition.to_state)
    except UNREADABLE as error:
        context.log.warning("transition cannot be read", id=record.id, error=repr(error))
        return None
    return transition


def _unreadable(record: Record, now: datetime) -> Notice:
    return Notice(
        incident=record.parent or record.id,
        channel=None,
        number=0,  # its own number is one of the things that may be wrong
        subject=record.subject,
        at=now,
        from_state="",
        to_state="",
        signal="",
        snapshot={},
        state=NoticeState.NOT_SENT,
        verdict=Verdict.UNREADABLE,
    )


def _keep_pulse(context: Context, dispatchers: Sequence[Dispatcher]) -> None:
    """Write a pulse every few seconds: that alerts runs, and how its channels do."""
    hub, started_at = context.connect(), to_text(context.clock.now())
    while not context.stop.is_set():
        now = context.clock.now()
        body = {
            "state": "running",
            "version": __version__,
            "owner": context.owner,
            "started_at": started_at,
            "counts": context.tally.counts(),
            "channels": [dispatcher.pulse() for dispatcher in dispatchers],
        }
        pulse = Record(
            kind=RecordKind.PULSE,
            id=f"alerts:{context.owner}",  # each process has its own
            at=now,
            subject="alerts",
            version=micros(now),
            body=body,
        )
        try:
            hub.write_records([pulse])
        except HubError as error:
            context.log.debug("no pulse", error=str(error))
        context.clock.wait(context.stop, PULSE_SECONDS)
