"""Series that were recorded on real GPUs: read, laid under injected faults, and judged."""
