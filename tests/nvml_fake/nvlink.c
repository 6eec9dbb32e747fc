/* The NVLinks of one GPU, by the calls that ask for one link. */
#include "call.h"

#include <stddef.h>

static nvmlReturn_t begin_link(nvmlDevice_t device, const char *function, unsigned int link, int *gpu) {
    TRY(begin_device(device, function, gpu));
    REQUIRE(link < (unsigned int)value_number(*gpu, VALUE_links));
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active) {
    int gpu;
    TRY(begin_link(device, __func__, link, &gpu));
    REQUIRE(active != NULL);
    *active = link_number(gpu, (int)link, VALUE_nvlink_state) != 0;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    int gpu;
    TRY(begin_link(device, __func__, link, &gpu));
    REQUIRE(version != NULL);
    *version = (unsigned int)link_number(gpu, (int)link, VALUE_nvlink_version);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int which,
                                                         unsigned long long *count) {
    static const enum value COUNTERS[] = {VALUE_nvlink_replays, VALUE_nvlink_recoveries, VALUE_nvlink_crc_flit_errors,
                                          VALUE_nvlink_crc_data_errors, VALUE_nvlink_ecc_errors};
    int gpu;
    TRY(begin_link(device, __func__, link, &gpu));
    REQUIRE(count != NULL && which < sizeof COUNTERS / sizeof *COUNTERS);
    *count = (unsigned long long)link_number(gpu, (int)link, COUNTERS[which]);
    return NVML_SUCCESS;
}
