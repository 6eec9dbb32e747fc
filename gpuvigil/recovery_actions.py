"""What the driver may ask to do about a GPU: nvml.h, `NVML_GPU_RECOVERY_ACTION_*`, in words."""

# From 1 on; 0 asks for nothing.
_ACTIONS = (
    "reset the GPU",
    "reboot the node",
    "drain peer-to-peer traffic",
    "drain and reset",
    "recover the IMEX domain",
    "reset the bus",
    "reboot the system",
)


def recovery_words(action: int) -> str:
    """Return what the driver asks to do, as it follows "asks to"."""
    return _ACTIONS[action - 1] if 0 < action <= len(_ACTIONS) else f"take action {action}"
