/* GPM: samples of a GPU or a MIG device, and what lies between two of them. */
#include "call.h"

#include <stddef.h>
#include <stdlib.h>

struct nvml_gpm_sample {
    int gpu, mig;
    double at;
};

static const struct {
    unsigned int id;
    enum value value;
} METRICS[] = {
    {1, VALUE_gpm_graphics_percent},
    {2, VALUE_gpm_sm_percent},
    {3, VALUE_gpm_occupancy_percent},
    {5, VALUE_gpm_tensor_percent},
    {10, VALUE_gpm_dram_percent},
    {11, VALUE_gpm_fp64_percent},
    {12, VALUE_gpm_fp32_percent},
    {13, VALUE_gpm_fp16_percent},
    {20, VALUE_gpm_pcie_tx_mebibytes_per_second},
    {21, VALUE_gpm_pcie_rx_mebibytes_per_second},
    {60, VALUE_gpm_nvlink_rx_mebibytes_per_second},
    {61, VALUE_gpm_nvlink_tx_mebibytes_per_second},
};

NVML_EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL && out->version == NVML_GPM_VERSION);
    out->isSupportedDevice = (unsigned int)value_number(gpu, VALUE_gpm_supported);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    TRY(begin(__func__));
    REQUIRE(sample != NULL);
    *sample = calloc(1, sizeof **sample);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    TRY(begin(__func__));
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t take_sample(nvmlDevice_t device, const char *function, int mig, nvmlGpmSample_t sample) {
    int gpu;
    TRY(begin_device(device, function, &gpu));
    REQUIRE(sample != NULL);
    *sample = (struct nvml_gpm_sample){gpu, mig, steady_seconds()};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    return take_sample(device, __func__, NO_MIG, sample);
}

/* A MIG device's GPU instance has its number plus 1: 0 is the whole GPU. */
NVML_EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample) {
    REQUIRE(instance > 0);
    return take_sample(device, __func__, (int)instance - 1, sample);
}

NVML_EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request) {
    TRY(begin(__func__));
    REQUIRE(request != NULL && request->version == NVML_GPM_VERSION);
    REQUIRE(request->sample1 != NULL && request->sample2 != NULL);
    const struct nvml_gpm_sample *first = request->sample1, *second = request->sample2;
    be_slow(second->gpu, __func__);
    REQUIRE(first->gpu == second->gpu && first->mig == second->mig && second->at > first->at);
    for (unsigned int i = 0; i < request->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &request->metrics[i];
        metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        for (size_t known = 0; known < sizeof METRICS / sizeof *METRICS; known++) {
            if (METRICS[known].id == metric->metricId) {
                metric->value = (double)mig_number(second->gpu, second->mig, METRICS[known].value);
                metric->nvmlReturn = NVML_SUCCESS;
            }
        }
    }
    return NVML_SUCCESS;
}
