/* What the library holds of the kernel: device files, and calls that do not come back. */
#ifndef NVML_FAKE_HOLD_H
#define NVML_FAKE_HOLD_H

#include <stdbool.h>

/* Opens the files nvidiactl and nvidia<slot> under NVML_FAKE_DEVICES, as the real library does. */
void hold_devices(void);

/* Closes them. */
void let_devices_go(void);

/* Where the state says `block=PATH`, asks the kernel for that file: its answer may never come. */
void wait_in_kernel(void);

/* Whether the state says `unloaded=1`: the driver is gone. */
bool is_unloaded(void);

#endif
