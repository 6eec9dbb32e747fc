"""A node's agent: its state and main loop. It never calls the driver, so it never gets stuck.

The reader's ticks become rows. Its Xids and every change of state become events at once. Rows and
events go through the spool to the hub; rows also go to `/metrics`.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuvigil import __version__
from gpuvigil.clock import Clock, to_text
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log
from gpuvigil.model import Allocation, Event, EventKind, Inventory, PortIdentity, Record, Subject

from ..inference.rows import InferenceBook
from ..inference.scrape_supervisor import Inference
from ..kernel_log.event_book import KernelBook
from ..machine.inspection_supervisor import Machine
from ..nccl.ranks import rank_watcher
from ..owners.disks import JobDisks
from ..owners.jobs import Gpus
from ..owners.kubelet.query_supervisor import Kubelet
from ..owners.owners import Owners
from ..owners.processes import ProcessTable
from ..rows.catalogue_rows import lines_of
from ..rows.events import EventMaker
from ..rows.gpu_changes import Silence
from ..rows.gpu_history import GpuBook
from ..rows.info_rows import Page
from ..rows.port_rows import PortBook
from ..samples.messages import NO_DRIVER, STARTING, Tick, XidSeen
from ..sensors.addressing import with_addressing
from ..sensors.crash_dumps import left_behind
from ..sensors.firmware import with_firmware
from ..sensors.host import boot_id, booted_at
from ..sensors.kernel_log import Source
from ..sensors.mtu import with_mtu
from ..sensors.neighbours import connect
from ..sensors.nics import NicSensor
from ..sensors.ports import PortSensor
from ..sensors.steps import Steps
from ..sensors.steps_socket import StepsSocket
from ..spool.batches import Sender
from ..spool.queue import Spool
from . import saved_state
from .control_commands import Control, released_until
from .control_socket import Reply, Request
from .exporter import Exporter
from .hub_restore import RestoredState
from .inbox import Inbox, Message, Work
from .kernel_log_listener import KernelLogListener
from .log_collection import LogCollector
from .maintenance import Maintenance
from .missing_driver import MissingDriver, expects_gpus, unsupported
from .newest_samples import NewestSamples
from .node_row import NodeRow
from .pci_bus import Bus
from .reader_supervisor import ReaderSupervisor
from .shutdown_event import last_word
from .tick_delay import TickDelay

log = Log("collector")

_INVENTORY_SECONDS = 600.0
_REMEMBER_SECONDS = (
    60.0  # the most that a kill -9 together with a hardware reset can take from counters
)
_LONGEST_WAIT_SECONDS = 1.1  # how soon the main loop notices that it must stop
# Ports are read together with a tick that comes at about the right time, to save a wake-up.
_EARLY, _LATE_SECONDS = 0.9, 0.05


class Agent:
    """One node: its books (what is known of GPUs, ports, owners) and the loop that keeps them."""

    # The state before the first message and tick; times are of the monotonic clock.
    _state = ""
    _driver: str | None = None
    _ticked: float | None = None
    _ports_polled: float | None = None
    _inventory_recorded: float | None = None
    _outage, _changed = False, True

    def __init__(
        self, settings: CollectorSettings, sender: Sender, spool: Spool, clock: Clock
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._spool, self._clock = spool, clock
        self._file = settings.spool_directory / "node.json"
        self._known = known = saved_state.load(self._file)
        known.enter(boot_id(settings.proc_root))
        for metric in ("reader_restarts", "dropped_bodies"):
            known.counters.update(f"node {metric}", 0)  # start counting here
        self._node = Subject(cluster=sender.cluster, node=sender.node)
        self._events = EventMaker(node=self._node, boot=sender.boot)
        self._gpus = GpuBook(
            self._events,
            known.gpus,
            known.counters,
            Silence.of(settings),
            known.missing,
            clock.monotonic,
        )
        self._ports = PortBook(self._events, known.ports, known.counters)
        self._kernel = KernelBook(
            settings.spool_directory / "kernel_log.json", self._node, known.gpus, clock
        )
        self._listener = KernelLogListener(self._kernel, clock, self.post, self._record_events)
        self._owners = Owners(
            self._node,
            settings.proc_root,
            settings.jobs_directory,
            known.held,
            booted_at(settings.proc_root),
        )
        self._kubelet = Kubelet(settings.kubelet_socket, settings.tick_seconds, clock)
        self._inference, self._served = Inference.of(settings, clock), InferenceBook(self._node)
        self._machine, self._logs, self._ranks = (
            Machine(settings, clock),
            LogCollector(settings, self._events, clock, self.post, self._record_events),
            rank_watcher(settings, self._events, clock, self.post, self._record_events),
        )
        self._sensor = PortSensor(settings.sysfs_root, settings.proc_root, clock.monotonic)
        self._steps, self._disks = _of_jobs(settings, clock)
        self._nics = NicSensor(settings.sysfs_root, clock.monotonic)
        self._bus, self._inbox, self._missing_driver = (
            Bus(settings.sysfs_root),
            Inbox(),
            MissingDriver(settings, known),
        )
        self._reader, self._newest = (
            ReaderSupervisor(settings, clock, self._inbox),
            NewestSamples(clock, settings.tick_seconds),
        )
        children = self._reader, self._machine
        self._own_row = NodeRow(self._node, settings, clock, known, spool, children=children)
        self._maintenance = Maintenance(self._reader, known, clock)
        self._control = Control(self, self._gpus, self._maintenance, known)
        self.exporter, self._page = Exporter(), Page.of(settings, self._node, known.gpus)
        self._remembered, self._delay = clock.monotonic(), TickDelay(settings)

    @property
    def needs_restore(self) -> bool:
        """Whether the hub should be asked what this node had, because the saved state is new."""
        return not self._known.complete

    def restore(self, state: RestoredState) -> None:
        """Take over the hub's answer; callable from any thread.

        Until then no inventory replaces the hub's.
        """
        self.post(lambda: self._restore(state))

    def handle(self, request: Request, reply: Reply) -> None:
        """Carry out a request from somebody on this machine; callable from any thread."""
        self.post(lambda: self._handle(request, reply))

    def status(self) -> dict[str, Any]:
        """Return what this agent does now, as plain values."""
        silent, refusal = self._gpus.silent_since, self._spool.disk.refusal
        return {
            "cluster": self._node.cluster,
            "node": self._node.node,
            "version": __version__,
            "driver": self._state or "starting",
            "gpus": len(self._known.gpus),
            "missing": sorted(self._known.missing),
            "released_until": released_until(self._known),
            "driver_silent_since": None if silent is None else to_text(silent),
            "spool_bytes": self._spool.bytes,
            "dropped_bodies": self._spool.dropped,
            "spool_refused_since": None if refusal is None else to_text(refusal.since),
            "spool_refused_why": None if refusal is None else refusal.why,
            "driverless": None
            if self._known.driverless_since is None
            else [gpu.words for gpu in self._bus.gpus if gpu.for_nvidia],
            "unsupported": unsupported(self._bus.gpus),
        }

    def newest(self) -> Mapping[str, Any]:
        """Return the reader's newest samples of every GPU."""
        return self._newest.plain()

    def post(self, work: Callable[[], None]) -> None:
        """Let the main loop run this work next; callable from any thread.

        Only the main loop may touch the books. A sensor with its own thread reports through this.
        """
        self._inbox.put(work)

    def run(self, stop: threading.Event) -> None:
        """Watch the node until `stop`."""
        self._record_boot()
        self._listener.listen(self._kernel_source(), stop)
        began = self._clock.monotonic()
        try:
            while not stop.is_set():
                if self._settings.gpus:
                    self._reader.keep()
                    self._kubelet.keep()
                self._inference.keep()
                self._check_maintenance()
                self._poll_ports()
                self._check_ranks()
                self._inspect_machine()
                self._dispatch(self._inbox.next(self._pause_seconds()))
                self._listener.flush_due()
                self._tick_without_reader(began)
        finally:
            if stop.is_set():
                self._record_shutdown()
            self._reader.stop()
            self._kubelet.stop()
            self._inference.stop()
            self._machine.stop()
            self._logs.stop()
            self._ranks.stop()
            self._steps.close()
            self._listener.record(self._kernel.flush())
            self._remember()

    def _record_shutdown(self) -> None:
        """Record the stop or shutdown, so that the silence after it is not taken for a dead node."""
        kind, words = last_word()
        event = self._events.make(kind, self._node, self._clock.now(), words)
        log.info("going", why=words)
        self._record([event.to_record()])

    def _inspect_machine(self) -> None:
        """Inspect the machine, but only after the first tick: the GPUs come first."""
        words = self._machine.keep() if self._ticked is not None else ""
        root, heard = self._settings.sysfs_root, self._machine.new_neighbours()
        self._changed |= connect(self._known.ports, root, heard)
        if words:
            now = self._clock.now()
            self._record_events([self._events.make(EventKind.HOST, self._node, now, words)])

    def _check_ranks(self) -> None:
        """Tick at once when a rank has died while others wait for it."""
        if self._steps.has_news():
            self._tick(self._newest.repeat(self._clock.now()))

    def _check_maintenance(self) -> None:
        """Tick at once when the driver has just been released."""
        if self._maintenance.check():
            self._changed = True
            if self._reader.released:
                self._tick(self._reader.absence(self._clock.now()))
            self._remember()

    def _handle(self, request: Request, reply: Reply) -> None:
        self._control.handle(request, reply)
        if request.get("do") != "status":  # every node check asks for the status
            log.info("told on this machine", do=str(request.get("do")))
            self._changed = True

    def _restore(self, state: RestoredState) -> None:
        if state.inventory is not None:
            self._ports.restore(state.inventory.ports)
            if self._gpus.restore(state.inventory.gpus, state.inventory.missing):
                log.info("the hub knows more GPUs of this node", gpus=len(self._known.gpus))
        self._record([one.to_record() for one in self._owners.restore(state.held)])
        self._known.complete = self._changed = True

    def _record_boot(self) -> None:
        """Record the boot time: a boot ends faults that a mere restart of this agent does not."""
        at = booted_at(self._settings.proc_root)
        if at is not None:
            # Until it is saved anew, the file is of the boot before.
            dump = left_behind(self._settings, self._file) if self._known.rebooted else None
            words = "the node was booted" + (f" after its kernel crashed: {dump}" if dump else "")
            boot = self._events.make(EventKind.BOOT, self._node, at, words)
            self._record([replace(boot, crashed=dump is not None).to_record()])

    def _kernel_source(self) -> Source:
        settings = self._settings
        return Source(
            path=settings.kernel_log,
            journalctl=settings.journalctl,
            proc_root=settings.proc_root,
        )

    def _dispatch(self, found: tuple[int, Message] | Work | None) -> None:
        if isinstance(found, tuple):
            self._handle_message(self._reader.note(*found))
        elif found is not None:
            found()

    def _handle_message(self, message: Message | None) -> None:
        if isinstance(message, XidSeen):
            self._listener.record(self._kernel.xid(self._gpus.xid(message)))
        elif message is not None:
            self._tick(message)

    def _pause_seconds(self) -> float:
        """Return the seconds until the ports or the maintenance are due to be looked at again."""
        if self._ports_polled is None:
            return 0.0
        due = self._ports_polled + self._settings.port_poll_seconds + _LATE_SECONDS
        soon = self._maintenance.pause_seconds
        longest = _LONGEST_WAIT_SECONDS if soon is None else min(soon, _LONGEST_WAIT_SECONDS)
        return min(due - self._clock.monotonic(), longest)

    def _tick_without_reader(self, began: float) -> None:
        """Tick for node and ports on time even when no reader sets the pace."""
        tick_seconds = self._settings.tick_seconds
        alone = not self._settings.gpus or self._reader.resting
        if self._ticked is None:
            # The first tick of a reader comes when the driver has started, or takes too long.
            due = began + (0.0 if alone else 1.0 + self._settings.driver_timeout_seconds)
        else:
            outage = self._reader.outage_seconds() is not None
            late = not alone and not outage
            due = self._ticked + tick_seconds * (1.5 if late else 1.0)
            if outage and not self._outage:
                due = 0.0  # an outage that has just become certain is told at once
            self._outage = outage
        if self._clock.monotonic() >= due:
            self._tick(self._reader.absence(self._clock.now()))

    def _poll_ports(self, *, for_rows: bool = False) -> None:
        """Read the ports: counters only when rows are made of them, otherwise just their state."""
        now, pause = self._clock.monotonic(), _EARLY * self._settings.port_poll_seconds
        if not for_rows and self._ports_polled is not None and now < self._ports_polled + pause:
            return
        self._ports_polled = now
        readings = self._sensor.read(counters=for_rows)
        events, changed = self._ports.update(readings, self._clock.now())
        self._changed |= changed
        self._record_events(events)

    def _poll_bus(self, tick: Tick | None, now: datetime) -> None:
        self._gpus.see_bus(self._bus.read())
        self._changed |= self._missing_driver.update(tick, self._bus.gpus, now)
        if self._bus.has_appeared(tick):
            log.info("a GPU has appeared, the driver is asked anew")
            self._reader.renew()

    def _tick(self, tick: Tick | None) -> None:
        """Do everything that is due once a tick."""
        now = self._clock.now()
        self._ticked = self._delay.tick(self._clock.monotonic())
        if tick is not None:
            self._newest.update(tick)
        self._note_state(tick)
        self._spool.disk.probe()
        self._poll_ports(for_rows=True)
        self._poll_bus(tick, now)
        running = _processes(tick)
        self._gpus.see_jobs(self._steps.read(running, now), self._disks.read(running))
        news = self._gpus.update(tick, now, self._reader.outage_seconds())
        self._changed |= news.changed
        for event in news.events:
            if event.kind in {EventKind.GPU_BACK, EventKind.GPU_RESET}:
                self._listener.record(self._kernel.calm(event.subject))
        self._record_events(news.events)
        if tick is not None and _names_all(tick):
            self._listener.settle()
        served = self._served.rows(self._inference.served(running), now)
        others = [*self._ports.rows(now), *served, self._own_row.row(tick, news, now)]
        shown = self._page.rows([*news.shown, *others], self._driver, now)
        self.exporter.show(shown, self._page.dcgm(self._owners.held))
        lines = lines_of([*news.rows, *others])
        began = self._note_holders(tick, now)
        self._ranks.update(news.rows, running, self._owners.held)
        self._record_inventory(now, silent=news.driver_answering is False)
        # Recorded only after it is saved: an allocation recorded and then forgotten never ends.
        self._record([one.to_record() for one in began])
        if news.events or self._clock.monotonic() - self._remembered >= _REMEMBER_SECONDS:
            self._remember()
        # Last, because it wakes a thread that would then wait for this one to finish.
        self._spool.put(self._sender.telemetry(lines, now))

    def _note_state(self, tick: Tick | None) -> None:
        """Log one line whenever the driver's state changes."""
        state = self._state if tick is None else tick.state
        if tick is not None and tick.driver not in {None, self._driver}:
            self._driver, self._changed = tick.driver, True
        if state == self._state:
            return
        self._state, self._changed = state, True
        if state == NO_DRIVER and self._known.gpus:
            log.warning("no NVIDIA driver, and GPUs were here", gpus=len(self._known.gpus))
        elif state == NO_DRIVER:
            log.info("no NVIDIA driver: watching ports only")
        else:
            log.info("driver", state=state, version=tick.driver if tick else None)

    def _note_holders(self, tick: Tick | None, now: datetime) -> list[Allocation]:
        """Record allocations that have ended; return those that began, for the caller to record."""
        processes = _processes(tick)
        migs = {
            mig.uuid: gpu.identity.uuid
            for gpu in (() if tick is None else tick.gpus)
            if gpu.identity is not None
            for mig in gpu.migs
        }
        gpus = Gpus(known=self._known.gpus, missing=self._known.missing, migs=migs)
        changes = self._owners.update(gpus, processes, now, self._kubelet.answer())
        self._record([one.to_record() for one in changes if one.ended_at is not None])
        self._changed |= bool(changes)
        return [one for one in changes if one.ended_at is None]

    def _record_inventory(self, now: datetime, *, silent: bool) -> None:
        """Save the state and record the inventory: at the start, after a change, every ten minutes."""
        passed = self._clock.monotonic()
        due = (
            self._inventory_recorded is None
            or passed - self._inventory_recorded >= _INVENTORY_SECONDS
        )
        if not self._changed and not due:
            return
        self._inventory_recorded, self._changed = passed, False
        self._remember()
        if not self._known.complete:
            return  # the hub's inventory may name hardware that was forgotten here
        inventory = Inventory(
            subject=self._node,
            at=now,
            boot=self._sender.boot,
            tick_seconds=self._settings.tick_seconds,
            version=__version__,
            gpus=tuple(self._known.gpus.values()),
            ports=self._ports_for_inventory(),
            nics=self._nics.read(self._known.ports.values(), self._bus.gpus),
            driver=None if self._state in {"", NO_DRIVER} else self._driver,
            driver_state="not answering" if silent else self._state or NO_DRIVER,
            kernel=os.uname().release,  # in a container that is still the host's
            rack=self._settings.rack or None,
            missing=dict(self._known.missing),
            on_bus=self._bus.gpus,
            driverless_since=self._known.driverless_since,
            expects_gpus=expects_gpus(self._known, self._node.node),
        )
        self._record([inventory.to_record()])

    def _ports_for_inventory(self) -> tuple[PortIdentity, ...]:
        """Return the known ports with what only an inventory needs: firmware, addresses, MTU."""
        root = self._settings.sysfs_root
        known = with_firmware(self._known.ports.values(), root)
        return with_mtu(with_addressing(known, root), root)

    def _remember(self) -> None:
        self._remembered = self._clock.monotonic()
        self._known.held = self._owners.held
        error = saved_state.save(self._file, self._known)
        self._spool.disk.probe()
        if error is not None and self._spool.disk.refusal is None:
            file = str(self._file)
            log.warning("what this node knows cannot be saved", file=file, why=str(error))
        saved_state.publish(self._settings.runtime_directory, self._known)

    def _record_events(self, events: Sequence[Event]) -> None:
        """Log the events, put them into the spool, and collect logs where they call for it."""
        self._page.count(events)
        for event in events:
            again = {} if event.count == 1 else {"count": event.count}
            log.warning(event.message, **self._gpus.named(event.subject), **again)
        self._record([event.to_record() for event in events])
        self._logs.handle(events)

    def _record(self, records: Iterable[Record]) -> None:
        found = list(records)
        if found:
            self._spool.put(self._sender.records(found, self._clock.now()))


def _of_jobs(settings: CollectorSettings, clock: Clock) -> tuple[Steps, JobDisks]:
    """Return what reads the steps of the programs on the GPUs, and the disks that their jobs use."""
    start_ticks = ProcessTable(settings.proc_root).start_ticks
    sent = StepsSocket(settings.runtime_directory, start_ticks)
    return (
        Steps(settings.steps_directory, settings.proc_root, start_ticks, clock.monotonic, sent),
        JobDisks(settings.proc_root, settings.sysfs_root, clock.monotonic),
    )


def _processes(tick: Tick | None) -> dict[str, tuple[int, ...]]:
    """Return the processes on each GPU that was read, by UUID."""
    return {
        gpu.identity.uuid: gpu.processes
        for gpu in (() if tick is None else tick.gpus)
        if gpu.identity is not None and gpu.processes is not None
    }


def _names_all(tick: Tick) -> bool:
    """Return whether the driver has named every GPU, or has said that it names none."""
    return tick.state != STARTING and all(gpu.identity is not None for gpu in tick.gpus)
