"""Events of the kernel log and of the driver, each reported once."""
