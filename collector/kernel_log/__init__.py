"""Events of the kernel log and of the driver, each told once."""
