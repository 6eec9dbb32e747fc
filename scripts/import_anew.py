"""Import of a mutant whose code is read at import: our modules are forgotten, and the changed one is found."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from scripts.mutations import Mutant


class Anew(importlib.abc.MetaPathFinder):
    """A finder of one module with another source than that of its file."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self._module, self._loader = module, _Given(module, path, source)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of that module, or None."""
        return importlib.util.spec_from_loader(name, self._loader) if name == self._module else None


class _Given(SourceFileLoader):
    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:
        return compile(self._source, self.path, "exec", dont_inherit=True)


def import_anew(root: Path, mutant: Mutant, source: str) -> None:
    """Forget every module below a folder, so that the next import finds the mutated one."""
    ours = {it.stem for it in root.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]
    module = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    sys.meta_path.insert(0, Anew(module, str(root / mutant.path), source))
