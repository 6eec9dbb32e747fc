/* What a GPU says of its memory's health, its repairs and its place in the NVLink fabric. */
#include "call.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NUMBER(key) ((unsigned long long)value_number(gpu, VALUE_##key))
#define SMALL(key) ((unsigned int)value_number(gpu, VALUE_##key))

/* Only the locations that parts since Ampere have: device memory and on-chip memory, over the board's life. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int uncorrected,
                                                         unsigned int aggregate, unsigned int location,
                                                         unsigned long long *out) {
    enum { DRAM = 2, SRAM = 7 };
    static const enum value COUNTS[2][2] = {
        {VALUE_ecc_corrected_dram, VALUE_ecc_corrected_sram},
        {VALUE_ecc_uncorrected_dram, VALUE_ecc_uncorrected_sram},
    };
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL && uncorrected < 2);
    if (aggregate != 1 || (location != DRAM && location != SRAM)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *out = (unsigned long long)value_number(gpu, COUNTS[uncorrected][location == SRAM]);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    if (out->version != NVML_SRAM_STATUS_V1_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    *out = (nvmlEccSramErrorStatus_t){
        .version = NVML_SRAM_STATUS_V1_VERSION,
        .aggregateUncParity = NUMBER(sram_parity),
        .aggregateUncSecDed = NUMBER(sram_secded),
        .aggregateUncBucketL2 = NUMBER(sram_l2),
        .aggregateUncBucketSm = NUMBER(sram_sm),
        .aggregateUncBucketPcie = NUMBER(sram_pcie),
        .aggregateUncBucketMcu = NUMBER(sram_mcu),
        .aggregateUncBucketOther = NUMBER(sram_other),
        .bThresholdExceeded = SMALL(sram_threshold_exceeded),
    };
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    *out = (nvmlRowRemapperHistogramValues_t){SMALL(histogram_max), SMALL(histogram_high), SMALL(histogram_partial),
                                              SMALL(histogram_low), SMALL(histogram_none)};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    if (out->version != NVML_REPAIR_STATUS_V1_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    out->bChannelRepairPending = SMALL(repair_channel_pending);
    out->bTpcRepairPending = SMALL(repair_tpc_pending);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    /* A driver that does not know version 3 says so; `fabric_health_summary` is then empty. */
    char text[64];
    value_text(gpu, VALUE_fabric_health_summary, text, sizeof text);
    int third = out->version == NVML_FABRIC_INFO_V3_VERSION;
    if (!(third && text[0] != '\0') && out->version != NVML_FABRIC_INFO_V2_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    value_text(gpu, VALUE_fabric_cluster, text, sizeof text);
    for (size_t byte = 0; byte < sizeof out->clusterUuid; byte++) {
        unsigned int digits = 0;
        if (strlen(text) >= 2 * byte + 2) {
            sscanf(text + 2 * byte, "%2x", &digits);
        }
        out->clusterUuid[byte] = (unsigned char)digits;
    }
    out->cliqueId = SMALL(fabric_clique);
    out->status = SMALL(fabric_status);
    out->state = SMALL(fabric_state);
    out->healthMask = SMALL(fabric_health_mask);
    if (third) {
        out->healthSummary = (unsigned char)SMALL(fabric_health_summary);
    }
    return NVML_SUCCESS;
}
