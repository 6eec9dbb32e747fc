"""The command `gpuvigil inject`: make a fault happen in a simulated node, or clear it.

It writes the file that the simulated sensors read, and nothing else: what follows is detected as
on real hardware.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import SystemClock, duration
from gpuvigil.config import SimulatorSettings, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.model import PortIdentity
from gpuvigil.state_directory import config_of_up, is_at_rest

from .cluster import Node, build, node_name
from .fabric.cabling import AT_LEAF
from .faults import KINDS, Effect, InjectedFault, Target, change, read

EVERYTHING = "all"


def main(arguments: Sequence[str]) -> int:
    """Return 0 when done, 2 for a fault or a place that does not exist."""
    commands = _parser()
    chosen = commands.parse_args(arguments)
    try:
        file = config_of_up(chosen.config)
        config = load(file)
        settings = config.simulator
        if chosen.list:
            print(listing(settings))
            return 0
        print(inject(chosen, settings, SystemClock().now()))
        if chosen.fault in KINDS and KINDS[chosen.fault].effect is Effect.IDLE and not chosen.clear:
            span = duration(timedelta(seconds=config.analyzer.idle_after_seconds))
            print(f"it is an incident once it has lasted {span} (idle_after_seconds)")
        if chosen.clear is None and is_at_rest(file):
            print("nothing runs here now: it begins with the next 'gpuvigil up'")
    except GpuvigilError as error:
        return fail(commands.prog, error)
    return 0


def _parser() -> argparse.ArgumentParser:
    commands = parser("inject", "Inject a fault into a simulated node, or clear it.")
    commands.add_argument("fault", nargs="?", help="what happens; --list names all")
    commands.add_argument("--node", help=f"simulated node, as {node_name(3)}")
    commands.add_argument("--gpu", type=int, help="index of the GPU")
    commands.add_argument("--device", help="network device; the first InfiniBand port if left out")
    commands.add_argument("--port", help="port of the device; 1 if left out")
    commands.add_argument(
        "--clear",
        nargs="?",
        const="",
        metavar=EVERYTHING,
        help=f"end the fault; '--clear {EVERYTHING}' ends every one",
    )
    commands.add_argument(
        "--list", action="store_true", help="name every fault, and those that are active"
    )
    return commands


def listing(settings: SimulatorSettings) -> str:
    """Return every fault with its place arguments and its sentence, and those that are active now."""
    place = {Target.GPU: "--node --gpu", Target.PORT: "--node [--device]", Target.NODE: "--node"}
    rows = [f"{name:<13} {place[kind.target]:<18} {kind.sentence}" for name, kind in KINDS.items()]
    try:
        active = [fault for fault in read(settings.faults_file) if fault.cleared_at is None]
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {settings.faults_file}: {error}") from None
    now = [f"{fault.name:<13} {fault.place} since {fault.at:%H:%M:%S} UTC" for fault in active]
    return "\n".join([*rows, "", "Now:" if now else "Now: none", *now])


def inject(chosen: argparse.Namespace, settings: SimulatorSettings, now: datetime) -> str:
    """Change the faults file as asked and return what was done; ConfigError when it cannot be done."""
    clear = chosen.clear is not None
    try:
        if clear and EVERYTHING in {chosen.clear, chosen.fault}:
            return _clear_all(settings.faults_file, now)
        fault = wanted(chosen, settings, now)
        faults = _on_rail(fault, settings) if fault.kind.on_rail else [fault]
        if clear:
            said = [_clear(settings.faults_file, one) for one in faults]
        else:
            said = [_add(settings, one) for one in faults]
        more = f" and {len(said) - 1} more nodes" if len(said) > 1 else ""
        return said[0] + more
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot change {settings.faults_file}: {error}") from None


def wanted(chosen: argparse.Namespace, settings: SimulatorSettings, now: datetime) -> InjectedFault:
    """Return the fault that the arguments name, checked against the cluster."""
    name = chosen.fault or chosen.clear
    if not name:
        raise ConfigError("name a fault; 'gpuvigil inject --list' names all")
    if name not in KINDS:
        raise ConfigError(f"{name!r} is not a fault; known are {', '.join(KINDS)}")
    _refuse_other_places(chosen, name)
    node = _node(chosen.node, settings)
    fault = InjectedFault(name=name, node=node.subject.node, at=now)
    if fault.kind.target is Target.GPU:
        return replace(fault, gpu=_gpu(chosen.gpu, node))
    if fault.kind.target is Target.PORT:
        port = _port(chosen.device, chosen.port, node)
        if fault.kind.effect.is_beyond_hosts and port.role != "fabric":
            raise ConfigError(f"{name} needs a port of the fabric; {port.device} is none")
        return replace(fault, device=port.device, port=port.port)
    return fault


def _on_rail(fault: InjectedFault, settings: SimulatorSettings) -> list[InjectedFault]:
    """Return the same fault on that port of all nodes at its leaf; the named one comes first."""
    nodes = [node.subject.node for node in _nodes(settings)]
    first = nodes.index(fault.node) // AT_LEAF * AT_LEAF
    others = [name for name in nodes[first : first + AT_LEAF] if name != fault.node]
    return [fault, *(replace(fault, node=name) for name in others)]


def _refuse_other_places(chosen: argparse.Namespace, name: str) -> None:
    """Raise ConfigError for a place that the fault does not have: it is a mistake, and not to be ignored."""
    target = KINDS[name].target
    given = {"--gpu": chosen.gpu, "--device": chosen.device, "--port": chosen.port}
    allowed = {Target.GPU: {"--gpu"}, Target.PORT: {"--device", "--port"}}.get(target, set())
    for option, value in given.items():
        if value is not None and option not in allowed:
            raise ConfigError(f"{name} is a fault of a {target.value}: leave out {option}")


def _node(name: str | None, settings: SimulatorSettings) -> Node:
    if settings.nodes == 0:
        raise ConfigError("nothing is simulated here; 'gpuvigil up --simulate 16' does")
    nodes = _nodes(settings)
    for node in nodes:
        if node.subject.node == name:
            return node
    known = f"{nodes[0].subject.node} to {nodes[-1].subject.node}"
    if name is None:
        raise ConfigError(f"name a simulated node with --node: {known}")
    raise ConfigError(f"{name!r} is not a simulated node; there are {known}")


def _nodes(settings: SimulatorSettings) -> Sequence[Node]:
    if not settings.fleet:
        return build(settings.nodes, settings.gpus_per_node, settings.seed).nodes
    try:
        from .live import nodes  # noqa: PLC0415 - needs numpy and Arrow, which the rest does without
    except ImportError as error:
        raise ConfigError(
            f"simulator.fleet needs numpy and pyarrow ({error}): in a checkout, pip install '.[hub]'"
        ) from error
    return nodes(settings)


def _gpu(index: int | None, node: Node) -> int:
    known = f"0 to {len(node.gpus) - 1}"
    if index is None:
        raise ConfigError(f"name a GPU of {node.subject.node} with --gpu: {known}")
    if not 0 <= index < len(node.gpus):
        raise ConfigError(f"{node.subject.node} has no GPU {index}; it has {known}")
    return index


def _port(device: str | None, number: str | None, node: Node) -> PortIdentity:
    for port in node.ports:
        fits = port.kind == "infiniband" if device is None else port.device == device
        if fits and number in {None, port.port}:
            return port
    known = ", ".join(f"{port.device} port {port.port}" for port in node.ports)
    raise ConfigError(f"{node.subject.node} has no such port; it has {known}")


def _add(settings: SimulatorSettings, fault: InjectedFault) -> str:
    with change(settings.faults_file) as faults:
        for other in faults:
            if other.cleared_at is None and other.same_place(fault):
                return f"{fault.name} on {fault.place} is there since {other.at:%H:%M:%S} UTC"
        faults.append(fault)
    note = ""
    if fault.kind.effect is Effect.IDLE and _is_free(fault, settings):
        note = "; nobody holds this GPU, so it is free and not idle"
    return f"injected {fault.name} on {fault.place}: {fault.kind.sentence}{note}"


def _is_free(fault: InjectedFault, settings: SimulatorSettings) -> bool:
    node = _node(fault.node, settings)
    # Jobs in the fleet come and go, and are not checked here.
    return fault.gpu is not None and bool(node.slots) and node.slots[fault.gpu] is None


def _clear(path: Path, wanted_fault: InjectedFault) -> str:
    with change(path) as faults:
        for number, fault in enumerate(faults):
            if fault.cleared_at is None and fault.same_place(wanted_fault):
                faults[number] = replace(fault, cleared_at=wanted_fault.at)
                return f"cleared {fault.name} on {fault.place}"
    raise ConfigError(f"there is no {wanted_fault.name} on {wanted_fault.place} to clear")


def _clear_all(path: Path, now: datetime) -> str:
    with change(path) as faults:
        cleared = 0
        for number, fault in enumerate(faults):
            if fault.cleared_at is None:
                faults[number] = replace(fault, cleared_at=now)
                cleared += 1
    return f"cleared {cleared} fault{'' if cleared == 1 else 's'}"
