"""The ten questions of a person on call, asked of the demo from a cold browser, answers held against the truth.

Each is about something drawn at random (`QUESTIONS_SEED` draws the same again), and takes at most two
clicks and five seconds: from the overview on a desk or a laptop, and from the page of an incident that a message's
link opens on a phone. What is typed is no click; the click into the field is one.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, ViewportSize
from playwright.sync_api import Error as PlaywrightError

from accounting.people.roles import Role
from dashboard.auth.accounts import Accounts, new_person
from dashboard.data.attention import attention
from dashboard.layout.panels import MOST_ATTENTION
from dashboard.lists.network import OF_LINKS
from dashboard.model.fold import folds, rows
from gpuvigil.clock import SystemClock, from_text
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import GPU
from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Incident,
    Inventory,
    RecordKind,
    Silence,
    Subject,
)
from gpuvigil.store.hub import HubStore
from gpuvigil.topology.link_names import port_name
from gpuvigil.web import page_links
from simulator.fleet.jobs import Job, team_of
from simulator.live import FleetStory
from soak.hand import PHONE, Hand
from soak.results import recorded
from tests.polling import wait_until
from tests.product import Product, clean_environment
from tests.servers import ROOT

pytestmark = pytest.mark.timeout(1200)

MOST_CLICKS, MOST_SECONDS = 2, 5.0
NODES, GPUS = 16, 8
DESK, LAPTOP = ViewportSize(width=1920, height=1200), ViewportSize(width=1440, height=900)
PASSWORD = "correct horse battery"
LASTS = timedelta(minutes=20)  # the jobs that are asked about run on for so long
# A GPU's hour: what it cost over five years and what it draws (accounting/cost/example.py).
HOUR_COSTS = 30_000 / (5 * 8_766) + 0.9 * 1.3 * 0.12
SETTINGS = """
[dashboard]
port = 0
[collector]
tick_seconds = 5.0
[simulator]
tick_seconds = 5.0
[analyzer]
tick_seconds = 2.0
idle_after_seconds = 60.0
silent_verdict_seconds = 60.0
"""

Ask = Callable[[Hand], None]


@dataclass
class Demo:
    """`gpuvigil up --simulate-fleet`, and what is true in it."""

    product: Product
    chance: random.Random
    seed: int
    hub: Hub
    url: str
    session: Path
    lost: Subject
    slow: Subject  # the node of a slow port
    silent: Subject
    held: Job  # by the lost GPU

    def active(self, fault: str = "", *, of: Subject | None = None) -> list[Incident]:
        records = self.hub.records(RecordKind.INCIDENT, states=["open", "acknowledged"])
        found = sorted(map(Incident.from_record, records), key=lambda it: it.id)
        found = [it for it in found if it.subject.cluster == SIMULATED_CLUSTER]
        return [
            it
            for it in found
            if (not fault or it.fault == fault) and (of is None or it.subject.of_node() == of)
        ]

    def slow_ports(self) -> list[Incident]:
        """What stands of the slow node's ports."""
        return [it for it in self.active(of=self.slow) if it.subject.kind == "port"]

    def idle_ones(self) -> list[Incident]:
        """What stands of idle GPUs of somebody, but of the silent node: what those do nobody knows."""
        found = self.active("gpu_idle_held")
        return [it for it in found if it.impact.users and it.subject.of_node() != self.silent]

    def gpu(self) -> tuple[Subject, int]:
        """One that answers."""
        known = [Inventory.from_record(it) for it in self.hub.records(RecordKind.INVENTORY)]
        mine = [
            it
            for it in known
            if it.subject.simulated and it.subject not in {self.silent, self.lost.of_node()}
        ]
        one = self.chance.choice(sorted(mine, key=lambda it: it.subject.node))
        index = self.chance.randrange(GPUS)
        uuid = next(it.uuid for it in one.gpus if it.index == index)
        return Subject(cluster=SIMULATED_CLUSTER, node=one.subject.node, gpu=uuid), index


def failing(demo: Demo) -> Ask:
    one = demo.chance.choice([it for it in demo.active() if it.subject == demo.lost])
    label = f"{demo.lost.node} GPU {demo.held.gpus[0] % GPUS}"
    assert one.label == label
    return lambda hand: _read(hand, one.title, label, one.action)


def idle(demo: Demo) -> Ask:
    one = demo.chance.choice(demo.idle_ones())
    (holder,), (user,) = one.impact.holders[:1], one.impact.users[:1]
    row = rf"{re.escape(user)} {holder} \d+ \d+ (\d+) (s|min|h)\b"

    def ask(hand: Hand) -> None:
        hand.to("Efficiency")
        found = re.search(row, hand.reads(row, r"\d+ GPUs? allocated to .* (is|are) at 0 % now"))
        assert found
        said = int(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]
        truth = (SystemClock().now() - one.since).total_seconds()
        assert said <= truth + 5
        assert said >= truth - 130  # made once a minute, in whole minutes

    return ask


def network(demo: Demo) -> Ask:
    one = demo.chance.choice(demo.slow_ports())
    where = rf"{re.escape(port_name(one.subject))}\b"
    # A job on one node needs no port.
    suffers = f"{one.impact.holders[0]} of " if one.impact.holders else re.escape(one.impact.text)

    def ask(hand: Hand) -> None:
        found = [it for it in demo.active() if it.fault in OF_LINKS]
        jobs = {job for it in found if it.impact.running for job in it.impact.holders}
        answer = (
            r"(Yes|Possibly|No): .*\d+ jobs?"
            if jobs
            else "(No job suffers now|is not known|jobs? may suffer);"
        )
        hand.to("Network")
        hand.reads(answer, f"{where}.*{re.escape(one.title)} .*{suffers}")

    return ask


def slow_job(demo: Demo) -> Ask:
    (lost, *_) = [it for it in demo.active() if it.subject == demo.lost]
    number = str(demo.held.holder).removeprefix("job ")
    assert str(demo.held.holder) in lost.impact.holders

    def ask(hand: Hand) -> None:
        if hand.on_phone:
            hand.look_for(number)
        else:
            hand.to("Jobs")
            hand.click(hand.page.locator(f'a[href$="job={number}"]'))
        hand.reads(f"Held up by {re.escape(lost.title)} .*{lost.label}", "What to do", path="/job?")

    return ask


def acknowledge(demo: Demo, one: Incident | None = None) -> Ask:
    shown = [it.incident for it in attention(demo.active(), [], SystemClock().now())]
    folded = folds(shown)  # whose row leads to a list
    shown = [it for it in rows(shown, folded)[:MOST_ATTENTION] if it.id not in folded]
    others = [it for it in shown if it.subject != demo.lost]
    first = [it for it in others if it.state == "open"]
    chosen = one or demo.chance.choice(first)

    def ask(hand: Hand) -> None:
        if one is None:
            hand.click(hand.page.locator(f'.attention a[href*="{chosen.id}"]'))
        hand.click(hand.page.get_by_role("button", name=re.compile("^Acknowledge, silence")))
        hand.reads("Taken by olga", "Silenced by olga until")
        taken = demo.hub.records(RecordKind.ACKNOWLEDGEMENT, parent=chosen.id)
        silences = map(Silence.from_record, demo.hub.records(RecordKind.SILENCE))
        assert [it.body["by"] for it in taken] == ["olga"]
        assert [it.by for it in silences if chosen.title in it.reason] == ["olga"]

    return ask


def cost(demo: Demo) -> Ask:
    told = [it for it in used(demo) if it["account"] and it["cluster"] == SIMULATED_CLUSTER]
    one = demo.chance.choice(sorted(told, key=lambda it: str(it["account"])))
    row = rf"{one['account']} ([\d.]+) \d+ % ([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)"

    def ask(hand: Hand) -> None:
        hand.to("Users and teams")
        text = hand.reads("Idle, USD", row, r"GPU-hours allocated.* idle, [\d.]+ USD")
        found = re.search(row, text)
        assert found
        held, idles, blocked, _, price = map(float, found.groups())
        # Counted anew every two minutes, while some thirty GPUs of a team go on.
        assert abs(held - float(one["gpu_hours"])) < 2.0
        assert -0.4 < float(one["idle_gpu_hours"]) - idles < blocked + 0.4
        assert price == pytest.approx(idles * HOUR_COSTS, abs=0.06)

    return ask


def used(demo: Demo) -> list[dict[str, Any]]:
    said = command(demo.product, "usage", "--by", "account", "--last", "7d", "-o", "json")
    found: list[dict[str, Any]] = json.loads(said)
    return found


def search(demo: Demo) -> Ask:
    gpu, index = demo.gpu()
    job = demo.chance.choice([demo.held])
    text, said, path = demo.chance.choice(
        [
            (gpu.gpu or "", f"{gpu.node} · GPU {index}", "/gpu?"),
            (f"{gpu.node} {index}", f"{gpu.node} · GPU {index}", "/gpu?"),
            (gpu.node, f"{gpu.node} ", "/node?"),
            (str(job.holder).removeprefix("job "), str(job.holder), "/job?"),
            (job.user, f"{job.user} ", f"/people?user={job.user}"),
            (team_of(job.user), team_of(job.user), f"/people?team={team_of(job.user)}"),
        ]
    )

    def ask(hand: Hand) -> None:
        hand.look_for(text)
        hand.reads(re.escape(said), path=path)

    return ask


PEERS = r"median of the node's 7 other GPUs: .*Temperature (\d+) °C \(others (\d+) °C\)"
WINDOW = r"Fixed window: \d\d:\d\d:\d\d to \d\d:\d\d:\d\d UTC on \d+ \w+"


def peers(demo: Demo) -> Ask:
    gpu, index = demo.gpu()

    def ask(hand: Hand) -> None:
        hand.look_for(f"{gpu.node} gpu {index}")
        found = re.search(PEERS, hand.reads(PEERS, path="/gpu?"))
        assert found
        asked = parse_qs(urlsplit(hand.page.url).query)
        span = from_text(asked["from"][0]), from_text(asked["to"][0])
        own, others = temperatures(demo.hub, gpu, span)
        assert int(found[1]) == pytest.approx(own, abs=2)
        assert int(found[2]) == pytest.approx(others, abs=2)

    return ask


def temperatures(hub: Hub, gpu: Subject, span: tuple[datetime, datetime]) -> tuple[float, float]:
    """The middle of a GPU's in the span, and that of the other GPUs of its node, from the store."""
    name = "temperature_celsius"
    where = {"cluster": gpu.cluster, "node": gpu.node}
    rows = HubStore(hub).series(GPU.name, [name], where, span, timedelta(seconds=10)).to_pylist()
    own = [it[name] for it in rows if it["uuid"] == gpu.gpu and it[name] is not None]
    others = [it[name] for it in rows if it["uuid"] != gpu.gpu and it[name] is not None]
    return float(np.median(own)), float(np.median(others))


def share(demo: Demo, browser: Browser) -> Ask:
    gpu, index = demo.gpu()

    def ask(hand: Hand) -> None:
        hand.look_for(f"{gpu.node} {index}")
        text = hand.reads(WINDOW, PEERS, path="/gpu?")
        shown = [re.search(it, text) for it in (WINDOW, PEERS)]
        other = fresh(browser, demo, DESK)
        colleague = Hand(other.new_page())
        colleague.page.goto(hand.page.url)
        colleague.reads(*(re.escape(it[0]) for it in shown if it))
        assert colleague.clicks == 0
        other.close()

    return ask


def healthy(demo: Demo) -> Ask:
    assert demo.active(of=demo.silent)

    def ask(hand: Hand) -> None:
        hand.to("Monitoring")
        text = hand.reads(f"Heard {NODES - 1} of {NODES} nodes", "Collectors of simulated")
        assert re.search(rf"{demo.silent.node}|pages may be wrong|1 node", text, re.IGNORECASE)

    return ask


def _read(hand: Hand, *texts: str) -> None:
    hand.reads(*map(re.escape, texts))


def questions(demo: Demo, browser: Browser, of: Incident | None) -> list[tuple[str, Ask]]:
    """`of`: the incident whose page is open when the question comes up."""
    return [
        ("Which GPU fails, and what do I do?", failing(demo)),
        ("Who holds idle GPUs, and for how long?", idle(demo)),
        ("Is the network my bottleneck: which link, which job?", network(demo)),
        ("Why is my job slow?", slow_job(demo)),
        ("Acknowledge it and silence it", acknowledge(demo, of)),
        ("What did idle cost this week, by team?", cost(demo)),
        ("Find anything by its name", search(demo)),
        ("A GPU against its peers", peers(demo)),
        ("Share a moment", share(demo, browser)),
        ("Is the monitoring itself healthy?", healthy(demo)),
    ]


def command(product: Product, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpuvigil", *arguments],
        cwd=ROOT,
        env={
            **clean_environment(),
            "XDG_STATE_HOME": str(product.state.parent),
            "PYTHONPATH": str(ROOT),
        },
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def fresh(browser: Browser, demo: Demo, size: ViewportSize) -> BrowserContext:
    """A browser that has never been here, of somebody who is signed in."""
    return browser.new_context(
        viewport=size, is_mobile=size is PHONE, has_touch=size is PHONE, storage_state=demo.session
    )


def session_of(browser: Browser, url: str, folder: Path) -> Path:
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").first.click()
    page.wait_for_selector("canvas[data-cells]")
    kept = folder / "session.json"
    context.storage_state(path=kept)
    context.close()
    return kept


@pytest.fixture(scope="module")
def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    seed = int(os.environ.get("QUESTIONS_SEED") or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"\nQUESTIONS_SEED={seed}\n")
    folder = tmp_path_factory.mktemp("demo")
    config = folder / "my.toml"
    config.write_text(SETTINGS, encoding="utf-8")
    start = [sys.executable, "-m", "gpuvigil", "up", "--simulate-fleet", str(NODES)]
    command_line = [*start, "--config", str(config)]
    with Product(command_line, ROOT, folder, {"PYTHONPATH": str(ROOT)}) as product:
        url = product.url(120.0).partition("/?")[0]
        secrets = product.state / "secrets"
        Accounts(secrets).add(new_person("olga", Role.OPERATOR, [], []), PASSWORD)
        text = (product.state / "gpuvigil.toml").read_text(encoding="utf-8")
        found = re.search(r'^url = "(.*)"$', text, re.MULTILINE)
        assert found
        token = secrets / "service-token"
        with_faults = broken(product, random.Random(seed))
        hub = Hub(found[1], lambda: token.read_text(encoding="utf-8").strip())
        shown = Demo(
            product=product,
            chance=random.Random(seed),
            seed=seed,
            hub=hub,
            url=url,
            session=session_of(browser, url, folder),
            **with_faults,
        )
        wait_until("everything is told", partial(told, shown), 300.0)
        yield shown
        hub.close()


def broken(product: Product, chance: random.Random) -> dict[str, Any]:
    """Make a GPU of one job fail, a port of another slow, and a node of others silent.

    Of a node that nobody uses it is not told for 20 minutes: it may be rebooting.
    """
    story = wait_until("the story", lambda: story_of(product.state), 60.0)
    fleet = story.fleet()
    now = SystemClock().now()
    at = (now - story.origin).total_seconds()
    topology = fleet.plan.topology
    running = [it for it in fleet.plan.jobs if it.start < at < it.end]
    large = [it for it in running if len(it.gpus) == GPUS and it.end > at + LASTS.total_seconds()]
    job, other = chance.sample(large, 2)
    theirs = {gpu // GPUS for it in (job, other) for gpu in it.gpus}
    last = [it for it in running if it.end > at + LASTS.total_seconds()]
    in_use = sorted({gpu // GPUS for it in last for gpu in it.gpus} - {0, 1} - theirs)
    names = [topology.node_subject(node) for node in range(NODES)]
    node, slow = names[job.gpus[0] // GPUS], names[other.gpus[0] // GPUS]
    silent = names[chance.choice(in_use)]
    index = job.gpus[0] % GPUS
    command(product, "inject", "xid79", "--node", node.node, "--gpu", str(index))
    command(product, "inject", "port-slow", "--node", slow.node)
    command(product, "inject", "node-silent", "--node", silent.node)
    return {"lost": topology.gpu_subject(job.gpus[0]), "slow": slow, "silent": silent, "held": job}


def story_of(state: Path) -> FleetStory | None:
    found = next(state.rglob("fleet-story.json"), None)
    return None if found is None else FleetStory.read(found)


def told(demo: Demo) -> bool:
    time.sleep(1)
    lost = any(it.subject == demo.lost for it in demo.active())
    slow = demo.slow_ports()
    idles = len(demo.idle_ones()) > 1
    return lost and bool(slow) and idles and bool(demo.active(of=demo.silent)) and bool(used(demo))


def asked(
    browser: Browser, demo: Demo, size: ViewportSize, start: str, ask: Ask
) -> tuple[int, float, float, str]:
    """The clicks that a question took, the seconds from the address to the answer, how many times slower
    the machine was than one that nobody else uses, and what was wrong."""
    context = fresh(browser, demo, size)
    hand = Hand(context.new_page())
    before, began = slowed(), time.monotonic()
    hand.page.goto(demo.url + start)
    wrong = ""
    try:
        ask(hand)
    except (AssertionError, PlaywrightError) as error:  # the others are asked all the same
        wrong = str(error)
    took = time.monotonic() - began
    context.close()
    return hand.clicks, took, (before + slowed()) / 2, wrong


def slowed() -> float:
    """How long this process waits for a processor: 1.0 where it has one for itself."""
    began, used_before = time.monotonic(), time.process_time()
    while time.process_time() - used_before < 0.2:
        sum(range(10_000))
    return max((time.monotonic() - began) / 0.2, 1.0)


@pytest.mark.parametrize(
    "size",
    [DESK, LAPTOP, PHONE],
    ids=["ten_questions_on_a_desk", "ten_questions_on_a_laptop", "ten_questions_from_a_phone"],
)
def test_each_of_the_ten_questions_takes_two_clicks_and_five_seconds(
    demo: Demo, browser: Browser, size: ViewportSize, request: pytest.FixtureRequest
) -> None:
    of, start = None, page_links.OVERVIEW
    if size is PHONE:
        of = next(it for it in demo.active() if it.subject == demo.lost)
        start = f"{page_links.INCIDENTS}?incident={quote(of.id)}"
    name = request.node.callspec.id
    sys.stdout.write(f"\n{name}\n")
    with recorded(name, questions_seed=demo.seed) as result:
        table = []
        for question, ask in questions(demo, browser, of):
            clicks, seconds, times, wrong = asked(browser, demo, size, start, ask)
            slower = f" on a machine {times:.1f} times slower" if times > 1.1 else ""
            sys.stdout.write(f"{question:55} {clicks} clicks {seconds:5.1f} s{slower} {wrong}\n")
            sys.stdout.flush()
            table.append((question, clicks, seconds, times, wrong))
            answered = {"clicks": clicks, "seconds": round(seconds, 1), "slower": round(times, 1)}
            result.tells(questions={**result.values.get("questions", {}), question: answered})
        assert [it for it in table if it[1] > MOST_CLICKS or it[4]] == []
        assert [it for it in table if it[2] > MOST_SECONDS * it[3]] == []
