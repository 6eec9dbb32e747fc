"""A child process that makes the pynvml calls it is sent, each in a thread of its own.

A request is one JSON line `{"id": 7, "call": "nvmlDeviceGetPowerUsage", "arguments": [{"ref": 3}]}`.
Its answer has the id and a `result`, or the NVML `error` code. What JSON cannot say (a handle, an
event set) stays here and travels as `{"ref": n}`.
"""

import ctypes
import json
import sys
import threading
from typing import Any

import pynvml

_FIELD_TYPES = {1: "uiVal", 3: "ullVal", 5: "siVal"}


class Client:
    """Answers requests on standard output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: list[Any] = []

    def answer(self, request: dict[str, Any]) -> None:
        """Make one call and say how it went."""
        arguments = [
            self._objects[argument["ref"]] if isinstance(argument, dict) else argument
            for argument in request["arguments"]
        ]
        try:
            outcome = {"result": getattr(pynvml, request["call"])(*arguments)}
        except pynvml.NVMLError as error:
            outcome = {"error": error.value}
        with self._lock:
            plain = {key: self._plain(value) for key, value in outcome.items()}
            sys.stdout.write(json.dumps({"id": request["id"], **plain}) + "\n")
            sys.stdout.flush()

    def _plain(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list | tuple | ctypes.Array):
            return [self._plain(item) for item in value]
        if isinstance(value, ctypes._Pointer):
            self._objects.append(value)
            return {"ref": len(self._objects) - 1}
        if value is None or isinstance(value, int | str):
            return value
        return {name: self._plain(part) for name, part in _parts(value)}


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The members of a structure, or of the object that pynvml makes of one."""
    if isinstance(value, pynvml.c_nvmlFieldValue_t):
        number = getattr(value.value, _FIELD_TYPES.get(value.valueType, "ullVal"))
        head = {"id": value.fieldId, "error": value.nvmlReturn, "type": value.valueType}
        return [*head.items(), ("value", number)]
    if isinstance(value, ctypes.Structure):
        return [(field[0], getattr(value, field[0])) for field in value._fields_]
    return list(vars(value).items())


def main() -> None:
    """Answer until standard input ends."""
    client = Client()
    for line in sys.stdin:
        threading.Thread(target=client.answer, args=[json.loads(line)], daemon=True).start()


if __name__ == "__main__":
    main()
