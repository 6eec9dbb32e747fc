/* Event sets: each hands every Xid event that follows a GPU's registration to its waiters once, in order. */
#include "call.h"
#include "state.h"

#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define MAX_SETS 32
/* How soon a set that was freed is noticed; an event wakes its waiter at once. */
#define POLL_SECONDS 1.0

struct nvml_event_set {
    bool used;
    unsigned long long delivered;
    unsigned long long types[MAX_GPUS];
    unsigned long long registered_after[MAX_GPUS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvml_event_set sets[MAX_SETS];

static bool is_live(nvmlEventSet_t set) {
    return set >= sets && set < sets + MAX_SETS && set->used;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
    TRY(begin(__func__));
    REQUIRE(out != NULL);
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_RESOURCES;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_SETS && result != NVML_SUCCESS; i++) {
        if (!sets[i].used) {
            memset(&sets[i], 0, sizeof sets[i]);
            sets[i].used = true;
            *out = &sets[i];
            result = NVML_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    TRY(begin(__func__));
    pthread_mutex_lock(&lock);
    bool live = is_live(set);
    if (live) {
        set->used = false;
    }
    pthread_mutex_unlock(&lock);
    return live ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    if ((types & ~(unsigned long long)value_number(gpu, VALUE_supported_event_types)) != 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&lock);
    bool live = is_live(set);
    if (live && set->types[gpu] == 0) {
        set->registered_after[gpu] = state_last_xid();
    }
    if (live) {
        set->types[gpu] |= types;
    }
    pthread_mutex_unlock(&lock);
    return live ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static bool wants(nvmlEventSet_t set, const struct xid_event *event) {
    return event->gpu >= 0 && event->gpu < MAX_GPUS && event->number > set->registered_after[event->gpu] &&
           (set->types[event->gpu] & NVML_EVENT_TYPE_XID_CRITICAL_ERROR) != 0;
}

/* Takes the next event of a set: success, a time-out for none, or an argument error for a set that was freed. */
static nvmlReturn_t take(nvmlEventSet_t set, nvmlEventData_t *out) {
    struct xid_event event;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = is_live(set) ? NVML_ERROR_TIMEOUT : NVML_ERROR_INVALID_ARGUMENT;
    while (result == NVML_ERROR_TIMEOUT && state_next_xid(set->delivered, &event)) {
        set->delivered = event.number;
        if (wants(set, &event)) {
            *out = (nvmlEventData_t){device_of(event.gpu), NVML_EVENT_TYPE_XID_CRITICAL_ERROR, event.code,
                                     NVML_NO_INSTANCE, NVML_NO_INSTANCE};
            result = NVML_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* A descriptor that is readable once the state file was replaced: waiting costs no processor time, as on a real driver. */
static int watch_state(void) {
    char directory[PATH_MAX];
    const char *path = getenv("NVML_FAKE_STATE");
    snprintf(directory, sizeof directory, "%s", path == NULL ? "" : path);
    int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(changes, dirname(directory), IN_MOVED_TO);
    return changes;
}

static void rest_until_change(int changes, double seconds) {
    char seen[4096];
    struct pollfd watched = {.fd = changes, .events = POLLIN};
    poll(&watched, 1, (int)(seconds * 1e3) + 1);
    while (read(changes, seen, sizeof seen) > 0) {
    }
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout_ms) {
    TRY(begin(__func__));
    REQUIRE(out != NULL);
    double end = steady_seconds() + timeout_ms / 1e3;
    int changes = watch_state();
    nvmlReturn_t result;
    double left;
    while ((result = take(set, out)) == NVML_ERROR_TIMEOUT && (left = end - steady_seconds()) > 0.0) {
        rest_until_change(changes, left < POLL_SECONDS ? left : POLL_SECONDS);
        wait_while_hung(-1);
    }
    close(changes);
    return result;
}
