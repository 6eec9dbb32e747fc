"""Manual page and shell completions, from the `--help` output of the command line.

`python -m scripts.manual FOLDER COMMAND [COMMAND...]` writes `gpuvigil.1.gz`, `gpuvigil.bash`, `_gpuvigil` and
`gpuvigil.fish` for these commands.
"""

import contextlib
import gzip
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import tomllib

from gpuvigil import __version__
from gpuvigil.command_line import COMMANDS

ROOT = Path(__file__).parent.parent

_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
_VERBS = re.compile(r"^  VERB\n((?:    .*\n?)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The help of a command, or of one of its verbs."""

    name: str
    """`token`, or `token create`."""
    text: str

    @property
    def options(self) -> list[str]:
        found = _OPTION.findall(self.text)
        return [*sorted({*found} - {"--help"}), "--help"]

    @property
    def verbs(self) -> list[str]:
        found = _VERBS.search(self.text)
        return re.findall(r"^    ([a-z-]+)\b", found[1], re.MULTILINE) if found else []


def main() -> int:
    """Write the four files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in written(sys.argv[2:]).items():
        (folder / name).write_bytes(content)
    return 0


def written(commands: Sequence[str]) -> dict[str, bytes]:
    """Return the files by name; the same help gives the same bytes."""
    told = list(tell(commands))
    found = {
        "gpuvigil.bash": bash(told),
        "_gpuvigil": zsh(told),
        "gpuvigil.fish": fish(told),
    }
    page = gzip.compress(manual_page(told).encode(), 9, mtime=0)
    return {"gpuvigil.1.gz": page, **{name: text.encode() for name, text in found.items()}}


def tell(commands: Sequence[str]) -> Iterator[Told]:
    """Yield every command, followed by its verbs."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    places = tomllib.loads(text)["project"]["entry-points"]["gpuvigil.commands"]
    for name in commands:
        module, _, function = places[name].partition(":")
        command = getattr(import_module(module), function)
        told = Told(name=name, text=_help(command, []))
        yield told
        for verb in told.verbs:
            yield Told(name=f"{name} {verb}", text=_help(command, [verb]))


def _help(command: object, words: Sequence[str]) -> str:
    assert callable(command)
    said = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            command([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return said.getvalue()


def manual_page(told: Sequence[Told]) -> str:
    """Return the page in man's own language (man(7))."""
    commands = [one for one in told if " " not in one.name]
    lines = [
        f'.TH GPUVIGIL 1 "" "gpuvigil {__version__}" "User Commands"',
        ".SH NAME",
        r"gpuvigil \- watches a GPU cluster: idle GPUs, failing hardware, network bottlenecks",
        ".SH SYNOPSIS",
        r".B gpuvigil \fICOMMAND\fR [\fB\-\-config\fR \fIFILE\fR] ...",
        ".SH COMMANDS",
    ]
    for one in commands:
        lines += [".TP", f".B {one.name}", _escaped(COMMANDS[one.name])]
    for one in told:
        lines += [f".SH {one.name.upper()}", ".nf", _escaped(one.text.rstrip()), ".fi"]
    lines += [
        ".SH FILES",
        *(".TP", ".I /etc/gpuvigil/collector.toml", "what a node's collector reads"),
        *(".TP", ".I /etc/gpuvigil/gpuvigil.toml", "what the services read"),
        ".SH EXIT STATUS",
        "0 done, 1 something failed (one line says what, where and what to do), 2 wrong arguments or"
        " configuration.",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", r"\-")
    return re.sub(r"^(?=[.'])", r"\&", text, flags=re.MULTILINE)


def _words(told: Sequence[Told]) -> Mapping[str, list[str]]:
    """Return what may follow each command or verb."""
    return {one.name: [*one.verbs, *one.options] for one in told}


def bash(told: Sequence[Told]) -> str:
    """Return the completion for bash-completion."""
    commands = " ".join(name for name in _words(told) if " " not in name)
    cases = "\n".join(
        f'        "{name}") words="{" ".join(words)}" ;;' for name, words in _words(told).items()
    )
    return f"""# bash completion for gpuvigil
_gpuvigil() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$word"))
        return
    fi
    if [ "${{COMP_WORDS[COMP_CWORD-1]}}" = "--config" ]; then
        COMPREPLY=($(compgen -f -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _gpuvigil gpuvigil
"""


def zsh(told: Sequence[Told]) -> str:
    """Return the completion for zsh."""
    commands = "\n".join(
        f"    '{name}:{COMMANDS[name].replace(chr(39), '').replace(':', ' ')}'"
        for name in _words(told)
        if " " not in name
    )
    cases = "\n".join(
        f"    '{name}') known=({' '.join(words)}) ;;" for name, words in _words(told).items()
    )
    return f"""#compdef gpuvigil
local -a commands known
commands=(
{commands}
)
if (( CURRENT == 2 )); then
    _describe command commands
    return
fi
case "${{words[2]}}" in
{cases}
esac
case "${{words[2]}} ${{words[3]}}" in
{cases}
esac
compadd -a known
_files
"""


def fish(told: Sequence[Told]) -> str:
    """Return the completion for fish."""
    lines = ["# fish completion for gpuvigil", "complete -c gpuvigil -n __fish_use_subcommand -f"]
    for one in told:
        command, _, verb = one.name.partition(" ")
        if not verb:
            said = COMMANDS[command].replace("'", "")
            lines.append(f"complete -c gpuvigil -n __fish_use_subcommand -a {command} -d '{said}'")
        seen = f"__fish_seen_subcommand_from {command}"
        where = f"{seen}; and __fish_seen_subcommand_from {verb}" if verb else seen
        lines += [f"complete -c gpuvigil -n '{where}' -a {word}" for word in one.verbs]
        lines += [
            f"complete -c gpuvigil -n '{where}' -l {it.removeprefix('--')}" for it in one.options
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
