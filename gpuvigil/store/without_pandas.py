"""Keeps pandas out of services that store and read telemetry, also where it is installed for the pages."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_NAME = "pandas"


class _NotInstalled(MetaPathFinder):
    """Answers for pandas as if it was not installed, which the service's own extra does not do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname == _NAME:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)


def go_without_pandas() -> None:
    """Let no library of this process load pandas; for a process of ours alone, at its start.

    Arrow and DuckDB load it at the first value they convert, only to see whether the value is one
    of pandas': 300 modules, 0.4 s of a core and 35 MiB. None in `sys.modules` would not do: DuckDB
    takes that for a pandas which is loaded, and fails.
    """
    sys.meta_path.insert(0, _NotInstalled())
