"""The place of a setting in its file."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .guesses import documented

_HEADER = re.compile(r"\s*\[(?P<list>\[)?\s*(?P<name>[\w.]+)\s*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The configuration file, to find the line of a key; the last entry of `asked` is what was asked last."""

    name: str
    text: str
    base: Path
    environment: Mapping[str, str]
    index: int = 0  # of the entry in a list of tables
    asked: list[tuple[tuple[str, ...], int]] = field(default_factory=list)

    def entry(self, index: int) -> "Place":
        return replace(self, index=index)

    def of(self, keys: tuple[str, ...]) -> str:
        """Return the file, line and key of a setting, or the variable that sets it."""
        self.asked.append((keys, self.index))
        variable = "GPUVIGIL_" + "_".join(keys).upper()
        if variable in self.environment:
            return variable
        number = self.line_of((keys, self.index))
        line = f", line {number}" if number else ""
        return f"{self.name}{line}, {'.'.join(keys)}"

    def line_of(self, said: tuple[tuple[str, ...], int]) -> int | None:
        """Return the line of a key in an entry; None when it is not in the file."""
        keys, index = said
        return self.entry(index)._in_its_table(keys) or self._anywhere(keys[-1])

    def _in_its_table(self, keys: tuple[str, ...]) -> int | None:
        """Return the line of the key below its table's header, or of the header itself; None without one."""
        wanted, above = ".".join(keys), ".".join(keys[:-1])
        inside, seen = False, Counter[str]()
        for number, line in enumerate(documented(self.text).splitlines(), 1):
            header = _HEADER.match(line)
            if header is None:
                if inside and re.match(rf"\s*{re.escape(keys[-1])}\s*=", line):
                    return number
                continue
            table = header["name"]
            is_it = header["list"] is None or seen[table] == self.index
            seen[table] += 1
            inside = is_it and table == above
            if is_it and table == wanted:
                return number
        return None

    def _anywhere(self, key: str) -> int | None:
        """Return the first line that sets the key, however it is spelled; None without one."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\w.]*\b{re.escape(key)}\b\s*(=|\])", line):
                return number
        return None
