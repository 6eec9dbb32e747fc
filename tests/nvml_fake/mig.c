/* The MIG devices of a GPU: how to find them, and who they are. */
#include "call.h"

#include <stddef.h>

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(count != NULL);
    *count = MAX_MIGS;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                             nvmlDevice_t *mig) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(mig != NULL && index < MAX_MIGS);
    if (value_number(gpu, VALUE_mig_current) == 0 || index >= (unsigned int)value_number(gpu, VALUE_mig_devices)) {
        return NVML_ERROR_NOT_FOUND;
    }
    *mig = mig_device_of(gpu, (int)index);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    int gpu, mig;
    TRY(begin_part(device, __func__, &gpu, &mig));
    REQUIRE(id != NULL && mig != NO_MIG);
    *id = (unsigned int)mig + 1;
    return NVML_SUCCESS;
}
