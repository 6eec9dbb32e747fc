/* Device files that are open while a client is initialised, and calls that the kernel keeps. */
#include "hold.h"

#include "call.h"
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int held[MAX_GPUS + 1];
static int held_count;

static void hold(const char *directory, const char *name) {
    char path[TEXT_SIZE];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        held[held_count++] = file;
    }
}

void hold_devices(void) {
    const char *directory = getenv("NVML_FAKE_DEVICES");
    if (directory == NULL) {
        return;
    }
    hold(directory, "nvidiactl");
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        char name[32];
        snprintf(name, sizeof name, "nvidia%d", gpu);
        if (is_present(gpu)) {
            hold(directory, name);
        }
    }
}

void let_devices_go(void) {
    while (held_count > 0) {
        close(held[--held_count]);
    }
}

void wait_in_kernel(void) {
    char path[TEXT_SIZE];
    struct stat unused;
    if (state_refresh() && state_has(KEY_BLOCK) && state_text("block", path, sizeof path)) {
        (void)!stat(path, &unused);
    }
}

bool is_unloaded(void) {
    return state_has(KEY_UNLOADED) && state_number("unloaded", 0.0) != 0.0;
}
