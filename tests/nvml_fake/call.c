/* Init and shutdown, and the common beginning of every call. */
#include "call.h"

#include "hold.h"
#include "state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_SECONDS 0.01
/* A call that hangs looks rarely: a real one is blocked, and wakes for nothing. */
#define HUNG_POLL_SECONDS 0.05

/* A handle is an address in an array whose content means nothing. */
struct nvml_device {
    char unused;
};

/* The GPUs, and after them the MIG devices of each. */
static struct nvml_device devices[MAX_GPUS * (1 + MAX_MIGS)];
static atomic_int users;

void rest(double seconds) {
    struct timespec length = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&length, NULL);
}

static int everything_hangs(void) {
    char text[16];
    return state_text("hang", text, sizeof text) && strcmp(text, "all") == 0;
}

void wait_while_hung(int gpu) {
    wait_in_kernel();
    while (state_refresh() && state_has(KEY_HANG) && (everything_hangs() || (gpu >= 0 && value_number(gpu, VALUE_hang) != 0))) {
        rest(HUNG_POLL_SECONDS);
    }
}

static double delay_of(int gpu, const char *what) {
    char key[160];
    if (gpu < 0) {
        snprintf(key, sizeof key, "delay.%s", what);
    } else {
        snprintf(key, sizeof key, "gpu.%d.delay.%s", gpu, what);
    }
    return state_number(key, 0.0);
}

void be_slow(int gpu, const char *what) {
    if (!state_has(KEY_DELAY)) {
        return;
    }
    double start = steady_seconds();
    double left;
    while ((left = start + delay_of(gpu, what) - steady_seconds()) > 0.0) {
        rest(left < POLL_SECONDS ? left : POLL_SECONDS);
        state_refresh();
    }
}

nvmlReturn_t told_return(int gpu, const char *what) {
    if (!state_has(KEY_RETURN)) {
        return NVML_SUCCESS;
    }
    char key[160];
    snprintf(key, sizeof key, "gpu.%d.return.%s", gpu, what);
    return (nvmlReturn_t)state_number(key, NVML_SUCCESS);
}

static nvmlReturn_t told_return_everywhere(const char *function) {
    if (!state_has(KEY_RETURN)) {
        return NVML_SUCCESS;
    }
    char key[160];
    snprintf(key, sizeof key, "return.%s", function);
    return (nvmlReturn_t)state_number(key, NVML_SUCCESS);
}

static double own_seconds(void) {
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (double)spent.tv_sec + (double)spent.tv_nsec / 1e9;
}

static bool is_dear(const char *function) {
    return strstr(function, "NvLink") != NULL || strstr(function, "Throughput") != NULL || strcmp(function, "nvmlDeviceGetFieldValues") == 0;
}

/* Spends the processor time that the state file says a call costs. */
static void charge(const char *function) {
    if (!state_has(KEY_CHARGE)) {
        return;
    }
    double end = own_seconds() + state_number(is_dear(function) ? "charge.dear" : "charge.call", 0.0);
    while (own_seconds() < end) {
    }
}

static nvmlReturn_t begin_uninitialised(const char *function) {
    wait_while_hung(-1);
    be_slow(-1, function);
    charge(function);
    return is_unloaded() ? NVML_ERROR_DRIVER_NOT_LOADED : told_return_everywhere(function);
}

nvmlReturn_t begin(const char *function) {
    nvmlReturn_t told = begin_uninitialised(function);
    return atomic_load(&users) > 0 ? told : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t begin_lookup(int gpu, const char *function) {
    TRY(begin(function));
    wait_while_hung(gpu);
    be_slow(gpu, function);
    TRY(told_return(gpu, function));
    int reachable = is_present(gpu) && (!state_has(KEY_LOST) || value_number(gpu, VALUE_lost) == 0);
    return reachable ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

nvmlReturn_t begin_device(nvmlDevice_t device, const char *function, int *gpu) {
    REQUIRE(device >= devices && device < devices + MAX_GPUS);
    *gpu = slot_of(device);
    return begin_lookup(*gpu, function);
}

nvmlReturn_t begin_part(nvmlDevice_t device, const char *function, int *gpu, int *mig) {
    REQUIRE(device >= devices && device < devices + sizeof devices / sizeof *devices);
    int number = slot_of(device);
    if (number < MAX_GPUS) {
        *mig = NO_MIG;
        return begin_device(device, function, gpu);
    }
    *gpu = (number - MAX_GPUS) / MAX_MIGS;
    *mig = (number - MAX_GPUS) % MAX_MIGS;
    TRY(begin_lookup(*gpu, function));
    REQUIRE(value_number(*gpu, VALUE_mig_current) != 0 && *mig < (int)value_number(*gpu, VALUE_mig_devices));
    return NVML_SUCCESS;
}

int is_present(int gpu) {
    return gpu < MAX_GPUS && gpu < (int)state_number("gpus", 8) && (!state_has(KEY_MISSING) || value_number(gpu, VALUE_missing) == 0);
}

nvmlDevice_t device_of(int gpu) {
    return &devices[gpu];
}

nvmlDevice_t mig_device_of(int gpu, int mig) {
    return &devices[MAX_GPUS + gpu * MAX_MIGS + mig];
}

int slot_of(nvmlDevice_t device) {
    return (int)(device - devices);
}

nvmlReturn_t give_text(const char *text, char *out, unsigned int length) {
    REQUIRE(out != NULL);
    if (strlen(text) + 1 > length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(out, text);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!state_refresh()) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    TRY(begin_uninitialised(__func__));
    if (atomic_fetch_add(&users, 1) == 0) {
        hold_devices();
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

NVML_EXPORT nvmlReturn_t nvmlShutdown(void) {
    TRY(begin(__func__));
    if (atomic_fetch_sub(&users, 1) == 1) {
        let_devices_go();
    }
    return NVML_SUCCESS;
}
