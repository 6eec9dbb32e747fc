/* The processes on one GPU; a caller first asks how many there are. */
#include "call.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nvmlProcessInfo_t process_of(const char *word) {
    nvmlProcessInfo_t process = {
        .pid = (unsigned int)strtoul(word, NULL, 10),
        .usedGpuMemory = NVML_VALUE_NOT_AVAILABLE,
        .gpuInstanceId = NVML_NO_INSTANCE,
        .computeInstanceId = NVML_NO_INSTANCE,
    };
    sscanf(word, "%*u:%llu", &process.usedGpuMemory);
    return process;
}

static unsigned int words_in(const char *text) {
    char copy[TEXT_SIZE];
    char *rest_of_text = NULL;
    unsigned int words = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &rest_of_text); word != NULL; word = strtok_r(NULL, " ", &rest_of_text)) {
        words++;
    }
    return words;
}

static nvmlReturn_t give_processes(nvmlDevice_t device, const char *function, enum value value, unsigned int *count,
                                   nvmlProcessInfo_t *out) {
    int gpu, mig;
    char text[TEXT_SIZE];
    TRY(begin_part(device, function, &gpu, &mig));
    REQUIRE(count != NULL);
    mig_text(gpu, mig, mig == NO_MIG ? value : VALUE_mig_compute_processes, text, sizeof text);
    unsigned int room = *count;
    *count = words_in(text);
    if (*count > room) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    REQUIRE(out != NULL || *count == 0);
    char *rest_of_text = NULL;
    for (char *word = strtok_r(text, " ", &rest_of_text); word != NULL; word = strtok_r(NULL, " ", &rest_of_text)) {
        *out++ = process_of(word);
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *out) {
    return give_processes(device, __func__, VALUE_compute_processes, count, out);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                  nvmlProcessInfo_t *out) {
    return give_processes(device, __func__, VALUE_graphics_processes, count, out);
}
