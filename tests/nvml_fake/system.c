/* Calls about the whole machine. */
#include "call.h"
#include "state.h"

#include <stdio.h>

static const char *const ERRORS[] = {
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "Operating System Error",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "ECC mode conflicts with vGPU",
    "Insufficient resources",
    "Frequency not supported",
    "Argument version mismatch",
    "Deprecated",
    "Not ready",
    "GPU not found",
    "Invalid state",
    "Reset type not supported",
};

/* A table look-up that touches no driver: it answers even while everything hangs. */
NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    return result < sizeof ERRORS / sizeof *ERRORS ? ERRORS[result] : "Unknown Error";
}

static nvmlReturn_t give_version(const char *key, const char *fallback, char *out, unsigned int length) {
    char text[128];
    return give_text(state_text(key, text, sizeof text) ? text : fallback, out, length);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    TRY(begin(__func__));
    return give_version("driver_version", "570.124.06", version, length);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    TRY(begin(__func__));
    return give_version("nvml_version", "12.570.124.06", version, length);
}

static nvmlReturn_t cuda_version(const char *function, int *version) {
    TRY(begin(function));
    REQUIRE(version != NULL);
    *version = (int)state_number("cuda_version", 12080);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(__func__, version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(__func__, version);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    TRY(begin(__func__));
    REQUIRE(count != NULL);
    *count = 0;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        *count += is_present(gpu) != 0;
    }
    return NVML_SUCCESS;
}
