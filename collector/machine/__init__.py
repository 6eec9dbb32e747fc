"""The machine around the GPUs: which of its parts fail, as far as the kernel shows unprivileged."""
