"""The command line of a gpuvigil child process: from the installed package, or the node's single file."""

import sys
from zipimport import zipimporter


def command(name: str, module: str) -> list[str]:
    """Return the words that run a gpuvigil command with this Python and the same isolation flags.

    `module` is where an installed command lives; from a zip file the command line finds `name`.
    """
    loader: object = getattr(__spec__, "loader", None)
    if not isinstance(loader, zipimporter):
        return [sys.executable, "-m", module]
    isolation = [("-I", sys.flags.isolated), ("-S", sys.flags.no_site)]
    flags = [flag for flag, is_set in isolation if is_set]
    return [sys.executable, *flags, loader.archive, name]
