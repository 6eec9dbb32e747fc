/* The numbers of one GPU: use, memory, power, heat, clocks, memory errors, PCIe. */
#include "call.h"

#include <stddef.h>

static nvmlReturn_t give_unsigned(nvmlDevice_t device, const char *function, enum value value, unsigned int *out) {
    int gpu;
    TRY(begin_device(device, function, &gpu));
    REQUIRE(out != NULL);
    *out = (unsigned int)value_number(gpu, value);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_wide(nvmlDevice_t device, const char *function, enum value value, unsigned long long *out) {
    int gpu;
    TRY(begin_device(device, function, &gpu));
    REQUIRE(out != NULL);
    *out = (unsigned long long)value_number(gpu, value);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_pair(nvmlDevice_t device, const char *function, const enum value pair[2],
                              unsigned int *first, unsigned int *second) {
    REQUIRE(second != NULL);
    TRY(give_unsigned(device, function, pair[0], first));
    *second = (unsigned int)value_number(slot_of(device), pair[1]);
    return NVML_SUCCESS;
}

#define UNSIGNED_GETTER(function, key)                                        \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *out) { \
        return give_unsigned(device, __func__, VALUE_##key, out);             \
    }

#define WIDE_GETTER(function, key)                                                  \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned long long *out) { \
        return give_wide(device, __func__, VALUE_##key, out);                       \
    }

#define PAIR_GETTER(function, key, other_key)                                                       \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *first, unsigned int *second) { \
        static const enum value PAIR[2] = {VALUE_##key, VALUE_##other_key};                         \
        return give_pair(device, __func__, PAIR, first, second);                                    \
    }

/* One value out of an array by the caller's selector. */
#define CHOICE_GETTER(function, choices)                                                        \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int which, unsigned int *out) { \
        REQUIRE(which < sizeof(choices) / sizeof *(choices));                                   \
        return give_unsigned(device, __func__, (choices)[which], out);                          \
    }

static const enum value CLOCKS[] = {VALUE_clock_graphics_megahertz, VALUE_clock_sm_megahertz,
                                    VALUE_clock_memory_megahertz, VALUE_clock_video_megahertz};
static const enum value MAX_CLOCKS[] = {VALUE_max_clock_graphics_megahertz, VALUE_max_clock_sm_megahertz,
                                        VALUE_max_clock_memory_megahertz, VALUE_max_clock_video_megahertz};
static const enum value SENSORS[] = {VALUE_temperature_celsius};
static const enum value THRESHOLDS[] = {VALUE_threshold_shutdown_celsius, VALUE_threshold_slowdown_celsius,
                                        VALUE_threshold_memory_max_celsius, VALUE_threshold_gpu_max_celsius};

CHOICE_GETTER(nvmlDeviceGetClockInfo, CLOCKS)
CHOICE_GETTER(nvmlDeviceGetMaxClockInfo, MAX_CLOCKS)
CHOICE_GETTER(nvmlDeviceGetTemperature, SENSORS)
CHOICE_GETTER(nvmlDeviceGetTemperatureThreshold, THRESHOLDS)

UNSIGNED_GETTER(nvmlDeviceGetArchitecture, architecture)
UNSIGNED_GETTER(nvmlDeviceGetPersistenceMode, persistence_mode)
UNSIGNED_GETTER(nvmlDeviceGetComputeMode, compute_mode)
UNSIGNED_GETTER(nvmlDeviceGetPowerUsage, power_milliwatts)
UNSIGNED_GETTER(nvmlDeviceGetEnforcedPowerLimit, power_limit_milliwatts)
UNSIGNED_GETTER(nvmlDeviceGetPerformanceState, performance_state)
UNSIGNED_GETTER(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending)
UNSIGNED_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
UNSIGNED_GETTER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
UNSIGNED_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_max_generation)
UNSIGNED_GETTER(nvmlDeviceGetMaxPcieLinkWidth, pcie_max_width)
UNSIGNED_GETTER(nvmlDeviceGetPcieReplayCounter, pcie_replays)
UNSIGNED_GETTER(nvmlDeviceGetNumFans, fans)

WIDE_GETTER(nvmlDeviceGetCurrentClocksEventReasons, event_reasons)
WIDE_GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, event_reasons)
WIDE_GETTER(nvmlDeviceGetSupportedClocksEventReasons, supported_event_reasons)
WIDE_GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, supported_event_reasons)
WIDE_GETTER(nvmlDeviceGetSupportedEventTypes, supported_event_types)

PAIR_GETTER(nvmlDeviceGetEccMode, ecc_mode, ecc_mode_pending)
PAIR_GETTER(nvmlDeviceGetMigMode, mig_current, mig_pending)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    static const enum value PAIR[2] = {VALUE_utilization_gpu_percent, VALUE_utilization_memory_percent};
    REQUIRE(out != NULL);
    return give_pair(device, __func__, PAIR, &out->gpu, &out->memory);
}

/* Encoder, decoder and their kin say for how many microseconds they were watched, too. */
static nvmlReturn_t give_engine(nvmlDevice_t device, const char *function, enum value value, unsigned int *utilization,
                                unsigned int *period) {
    REQUIRE(period != NULL);
    *period = 167000;
    return give_unsigned(device, function, value, utilization);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *out, unsigned int *period) {
    return give_engine(device, __func__, VALUE_utilization_encoder_percent, out, period);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *out, unsigned int *period) {
    return give_engine(device, __func__, VALUE_utilization_decoder_percent, out, period);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *out, unsigned int *period) {
    return give_engine(device, __func__, VALUE_utilization_jpeg_percent, out, period);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *out, unsigned int *period) {
    return give_engine(device, __func__, VALUE_utilization_optical_flow_percent, out, period);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *out) {
    REQUIRE(fan < (unsigned int)value_number(slot_of(device), VALUE_fans));
    return give_unsigned(device, __func__, VALUE_fan_speed_percent, out);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    out->bar1Total = (unsigned long long)value_number(gpu, VALUE_bar1_total_bytes);
    out->bar1Used = (unsigned long long)value_number(gpu, VALUE_bar1_used_bytes);
    out->bar1Free = out->bar1Total - out->bar1Used;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    if (out->version != NVML_MARGIN_TEMPERATURE_V1_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    out->marginTemperature = (int)value_number(gpu, VALUE_temperature_margin_celsius);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL && out->sensorType == 0);
    if (out->version != NVML_TEMPERATURE_V1_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    out->temperature = (int)value_number(gpu, VALUE_temperature_celsius);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    int gpu, mig;
    TRY(begin_part(device, __func__, &gpu, &mig));
    REQUIRE(out != NULL);
    if (out->version != NVML_MEMORY_V2_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    int whole = mig == NO_MIG;
    out->total = (unsigned long long)mig_number(gpu, mig, whole ? VALUE_memory_total_bytes : VALUE_mig_memory_total_bytes);
    out->reserved = whole ? (unsigned long long)value_number(gpu, VALUE_memory_reserved_bytes) : 0;
    out->used = (unsigned long long)mig_number(gpu, mig, whole ? VALUE_memory_used_bytes : VALUE_mig_memory_used_bytes);
    out->free = out->total - out->reserved - out->used;
    return NVML_SUCCESS;
}

/* The older call counts what the driver reserves as used. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    out->total = (unsigned long long)value_number(gpu, VALUE_memory_total_bytes);
    out->used = (unsigned long long)(value_number(gpu, VALUE_memory_reserved_bytes) +
                                     value_number(gpu, VALUE_memory_used_bytes));
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *out) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    *out = energy_millijoules(gpu);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int uncorrected,
                                                     unsigned int aggregate, unsigned long long *out) {
    static const enum value COUNTS[2][2] = {
        {VALUE_ecc_corrected_volatile, VALUE_ecc_corrected_aggregate},
        {VALUE_ecc_uncorrected_volatile, VALUE_ecc_uncorrected_aggregate},
    };
    REQUIRE(uncorrected < 2 && aggregate < 2);
    return give_wide(device, __func__, COUNTS[uncorrected][aggregate], out);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                                   unsigned int *uncorrected, unsigned int *pending,
                                                   unsigned int *failure) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(corrected != NULL && uncorrected != NULL && pending != NULL && failure != NULL);
    *corrected = (unsigned int)value_number(gpu, VALUE_remapped_corrected);
    *uncorrected = (unsigned int)value_number(gpu, VALUE_remapped_uncorrected);
    *pending = (unsigned int)value_number(gpu, VALUE_remapped_pending);
    *failure = (unsigned int)value_number(gpu, VALUE_remapped_failure);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy,
                                                      nvmlViolationTime_t *out) {
    static const enum value POLICIES[][2] = {
        {VALUE_sw_power_cap_nanoseconds, VALUE_sw_power_cap_nanoseconds_per_second},
        {VALUE_thermal_violation_nanoseconds, VALUE_thermal_violation_nanoseconds_per_second},
        {VALUE_sync_boost_nanoseconds, VALUE_sync_boost_nanoseconds_per_second},
    };
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(out != NULL);
    if (policy >= sizeof POLICIES / sizeof *POLICIES) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    out->referenceTime = (unsigned long long)(wall_seconds() * 1e6);
    out->violationTime = counter(gpu, NO_LINK, POLICIES[policy][0], POLICIES[policy][1]);
    return NVML_SUCCESS;
}
