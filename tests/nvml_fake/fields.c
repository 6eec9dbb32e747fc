/* nvmlDeviceGetFieldValues: many values in one call, each with a type and a return code of its own. */
#include "call.h"
#include "state.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum source { GPU_VALUE, GPU_COUNTER, LINK_VALUE, NVLINK5_VALUE, LINK_SUM, ENERGY };

struct field {
    unsigned int id;
    unsigned int type;
    enum source source;
    enum value value;
    enum value rate;
};

#define UINT NVML_VALUE_TYPE_UNSIGNED_INT
#define WIDE NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
#define SINT NVML_VALUE_TYPE_SIGNED_INT
#define PLAIN(id, type, key) {id, type, GPU_VALUE, VALUE_##key, VALUE_NONE}
#define RATED(id, key) {id, WIDE, GPU_COUNTER, VALUE_##key, VALUE_##key##_per_second}
#define LINK(id, type, key) {id, type, LINK_VALUE, VALUE_##key, VALUE_NONE}
#define NVLINK5(id, key) {id, WIDE, NVLINK5_VALUE, VALUE_##key, VALUE_NONE}
#define SUM(id, key) {id, WIDE, LINK_SUM, VALUE_##key, VALUE_NONE}
#define RATED_SUM(id, key) {id, WIDE, LINK_SUM, VALUE_##key, VALUE_##key##_per_second}

static const struct field FIELDS[] = {
    PLAIN(1, UINT, ecc_mode),
    PLAIN(2, UINT, ecc_mode_pending),
    PLAIN(3, WIDE, ecc_corrected_volatile),
    PLAIN(4, WIDE, ecc_uncorrected_volatile),
    PLAIN(5, WIDE, ecc_corrected_aggregate),
    PLAIN(6, WIDE, ecc_uncorrected_aggregate),
    PLAIN(31, UINT, retired_pending),
    RATED(74, sw_power_cap_nanoseconds),
    RATED(75, thermal_violation_nanoseconds),
    RATED(76, sync_boost_nanoseconds),
    RATED(77, board_limit_nanoseconds),
    RATED(79, reliability_nanoseconds),
    PLAIN(82, UINT, memory_temperature_celsius),
    {83, WIDE, ENERGY, VALUE_energy_millijoules, VALUE_NONE},
    PLAIN(91, UINT, links),
    PLAIN(94, UINT, pcie_replays),
    PLAIN(95, UINT, pcie_rollovers),
    RATED_SUM(138, nvlink_tx_kibibytes),
    RATED_SUM(139, nvlink_rx_kibibytes),
    RATED_SUM(140, nvlink_raw_tx_kibibytes),
    RATED_SUM(141, nvlink_raw_rx_kibibytes),
    PLAIN(142, UINT, remapped_corrected),
    PLAIN(143, UINT, remapped_uncorrected),
    PLAIN(144, UINT, remapped_pending),
    PLAIN(145, UINT, remapped_failure),
    SUM(160, nvlink_ecc_errors),
    SUM(161, nvlink_replays),
    SUM(162, nvlink_recoveries),
    SUM(163, nvlink_crc_flit_errors),
    LINK(164, UINT, nvlink_speed_megabytes_per_second),
    LINK(165, UINT, nvlink_state),
    LINK(166, UINT, nvlink_version),
    PLAIN(169, UINT, pcie_recoveries),
    PLAIN(173, UINT, pcie_correctable),
    PLAIN(174, UINT, pcie_naks_received),
    PLAIN(175, UINT, pcie_receiver),
    PLAIN(176, UINT, pcie_bad_tlps),
    PLAIN(177, UINT, pcie_naks_sent),
    PLAIN(178, UINT, pcie_bad_dllps),
    PLAIN(179, UINT, pcie_non_fatal),
    PLAIN(180, UINT, pcie_fatal),
    PLAIN(181, UINT, pcie_unsupported),
    PLAIN(182, UINT, pcie_lcrc),
    PLAIN(183, UINT, pcie_lanes),
    PLAIN(185, UINT, power_average_milliwatts),
    PLAIN(186, UINT, power_instant_milliwatts),
    PLAIN(187, UINT, power_min_limit_milliwatts),
    PLAIN(188, UINT, power_max_limit_milliwatts),
    PLAIN(189, UINT, power_default_limit_milliwatts),
    PLAIN(190, UINT, power_limit_milliwatts),
    PLAIN(192, UINT, power_requested_limit_milliwatts),
    PLAIN(193, SINT, tlimit_shutdown_celsius),
    PLAIN(194, SINT, tlimit_slowdown_celsius),
    PLAIN(195, SINT, tlimit_memory_max_celsius),
    PLAIN(196, SINT, tlimit_gpu_max_celsius),
    RATED(197, pcie_tx_bytes),
    RATED(198, pcie_rx_bytes),
    NVLINK5(202, nvlink_tx_bytes),
    NVLINK5(204, nvlink_rx_bytes),
    NVLINK5(208, nvlink_receive_errors),
    NVLINK5(213, nvlink_recoveries_succeeded),
    NVLINK5(214, nvlink_recoveries_failed),
    NVLINK5(219, nvlink_effective_errors),
    NVLINK5(221, nvlink_symbol_errors),
    PLAIN(230, UINT, recovery_action),
    RATED(269, sw_thermal_nanoseconds),
    RATED(270, hw_thermal_nanoseconds),
    RATED(271, hw_power_brake_nanoseconds),
};

static const struct field *find(unsigned int id) {
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (FIELDS[i].id == id) {
            return &FIELDS[i];
        }
    }
    return NULL;
}

static unsigned long long gpu_number(int gpu, const struct field *field) {
    char text[64];
    value_text(gpu, field->value, text, sizeof text);
    /* Only average and instant power have no default of their own. */
    return (unsigned long long)value_number(gpu, text[0] == '\0' ? VALUE_power_milliwatts : field->value);
}

static nvmlReturn_t link_reading(int gpu, const struct field *field, unsigned int scope, unsigned long long *number) {
    unsigned int links = (unsigned int)value_number(gpu, VALUE_links);
    int version = (int)link_number(gpu, (int)scope, VALUE_nvlink_version);
    if (field->source == NVLINK5_VALUE && version < NVML_NVLINK_VERSION_5_0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (field->source == LINK_SUM && scope == NVML_ALL_SCOPES && !state_has(KEY_LINK)) {
        *number = links * counter(gpu, NO_LINK, field->value, field->rate);
        return NVML_SUCCESS;
    }
    if (field->source == LINK_SUM && scope == NVML_ALL_SCOPES) {
        for (unsigned int link = 0; link < links; link++) {
            *number += counter(gpu, (int)link, field->value, field->rate);
        }
        return NVML_SUCCESS;
    }
    REQUIRE(scope < links);
    *number = counter(gpu, (int)scope, field->value, field->rate);
    return NVML_SUCCESS;
}

static nvmlReturn_t reading(int gpu, const struct field *field, unsigned int scope, unsigned long long *number) {
    switch (field->source) {
    case GPU_VALUE:
        *number = gpu_number(gpu, field);
        return NVML_SUCCESS;
    case GPU_COUNTER:
        *number = counter(gpu, NO_LINK, field->value, field->rate);
        return NVML_SUCCESS;
    case ENERGY:
        *number = energy_millijoules(gpu);
        return NVML_SUCCESS;
    default:
        return link_reading(gpu, field, scope, number);
    }
}

static void write_number(nvmlFieldValue_t *out, unsigned int type, unsigned long long number) {
    out->valueType = type;
    if (type == NVML_VALUE_TYPE_UNSIGNED_INT) {
        out->value.uiVal = (unsigned int)number;
    } else if (type == NVML_VALUE_TYPE_SIGNED_INT) {
        out->value.siVal = (int)number;
    } else {
        out->value.ullVal = number;
    }
}

static nvmlReturn_t told_of_field(int gpu, unsigned int id) {
    char what[32];
    if (!state_has(KEY_DELAY) && !state_has(KEY_RETURN)) {
        return NVML_SUCCESS;
    }
    snprintf(what, sizeof what, "field.%u", id);
    be_slow(-1, what);
    be_slow(gpu, what);
    return told_return(gpu, what);
}

static nvmlReturn_t read_field(int gpu, nvmlFieldValue_t *out) {
    TRY(told_of_field(gpu, out->fieldId));
    const struct field *field = find(out->fieldId);
    if (field == NULL) {
        return out->fieldId < NVML_FIELD_ID_END ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned long long number = 0;
    TRY(reading(gpu, field, out->scopeId, &number));
    write_number(out, field->type, number);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(values != NULL && count > 0);
    for (int i = 0; i < count; i++) {
        double start = steady_seconds();
        memset(&values[i].value, 0, sizeof values[i].value);
        values[i].nvmlReturn = read_field(gpu, &values[i]);
        values[i].timestamp = (long long)(wall_seconds() * 1e6);
        values[i].latencyUsec = (long long)((steady_seconds() - start) * 1e6);
    }
    return NVML_SUCCESS;
}
