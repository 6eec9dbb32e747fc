"""The command line of a child process of ours: installed, or in the one file that a node runs."""

import sys
from zipimport import zipimporter


def command(name: str, module: str) -> list[str]:
    """The words that run a command of ours with this Python, in the same isolation.

    `module` is where an installed command lives; from a zip file the command line finds `name`.
    """
    loader: object = getattr(__spec__, "loader", None)
    if not isinstance(loader, zipimporter):
        return [sys.executable, "-m", module]
    isolation = [("-I", sys.flags.isolated), ("-S", sys.flags.no_site)]
    flags = [flag for flag, is_set in isolation if is_set]
    return [sys.executable, *flags, loader.archive, name]
