"""Calls on one device, bound once, with their refusals by the driver and their costs."""

import ctypes
import re
import time
from collections.abc import Callable

from ..samples.gpu_sample import CallCost
from .codes import FUNCTION_NOT_FOUND, NOT_SUPPORTED, OF_ALL, REFUSALS, SUCCESS, DriverError

_FUNCTION = re.compile(r"nvml\w+")


class Calls:
    """The calls on one device, with the refusals and costs of each; for one thread."""

    def __init__(
        self,
        library: ctypes.CDLL,
        handle: "ctypes._Pointer[ctypes.Structure]",
        costs: dict[str, CallCost] | None = None,
    ) -> None:
        """Set up; `costs` is shared by the devices of one GPU."""
        self.library = library
        self.handle = handle
        self.costs: dict[str, CallCost] = {} if costs is None else costs
        self.succeeded = False
        self.failure = SUCCESS
        self.made = 0  # calls that returned
        self._refused: dict[str, int] = {}
        self._functions: dict[str, Callable[..., int] | None] = {}

    def begin_sweep(self) -> None:
        self.succeeded, self.failure = False, SUCCESS

    def retry(self) -> None:
        """Forget all refusals, except of functions that this driver's library does not have at all."""
        self._refused = {k: c for k, c in self._refused.items() if c == FUNCTION_NOT_FOUND}

    def call(self, key: str, name: str, *arguments: object) -> bool:
        """Call the device unless the call was refused before; return true when it succeeded.

        A refusal is remembered by `key`. DriverError when the GPU is lost or the driver is gone.
        """
        return self.code(key, name, self.handle, *arguments) == SUCCESS

    def code(self, key: str, name: str, *arguments: object) -> int:
        """Return the code of a call with exactly these arguments; otherwise as in `call`."""
        if key in self._refused:
            return self._refused[key]
        function = self.bound(name)
        code = FUNCTION_NOT_FOUND
        if function is not None:
            start = time.perf_counter()
            code = function(*arguments)
            took = time.perf_counter() - start
            self.made += 1
            cost = self.costs.get(name)
            if cost is None:
                cost = self.costs[name] = CallCost()
            cost.calls += 1
            cost.seconds += took
            cost.slowest_seconds = max(cost.slowest_seconds, took)
        if code == SUCCESS:
            self.succeeded = True
        else:
            self._note(key, name, code)
        return code

    def refuse(self, key: str) -> None:
        """Treat the call as refused until the next slow tick."""
        self._refused[key] = NOT_SUPPORTED

    def refuses(self, key: str) -> bool:
        """Return whether the driver has refused this call, as far as is known."""
        return key in self._refused

    def refused(self) -> dict[str, int]:
        """Return the refused functions with their last code; a key begins with its function."""
        names = {key: _FUNCTION.match(key) for key in self._refused}
        return {found[0]: self._refused[key] for key, found in names.items() if found is not None}

    def bound(self, name: str) -> Callable[..., int] | None:
        """Return the library's function, or None when this driver has none of that name."""
        if name not in self._functions:
            self._functions[name] = getattr(self.library, name, None)
        return self._functions[name]

    def _note(self, key: str, name: str, code: int) -> None:
        """Remember a failure; DriverError when it concerns the whole GPU or driver."""
        if code in OF_ALL:
            raise DriverError(name, code)
        if code in REFUSALS:
            self._refused[key] = code
        if self.failure in REFUSALS or self.failure == SUCCESS:
            self.failure = code
