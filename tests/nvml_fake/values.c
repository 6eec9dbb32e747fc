/* Looks values up: the link's own, the GPU's, the default. */
#include "values.h"

#include "state.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct {
    const char *key, *fallback;
} VALUES[] = {
#define VALUE(key, fallback) {#key, fallback},
#include "values.def"
#undef VALUE
};

static bool part_text(int gpu, const char *part, int number, enum value value, char *text, size_t size) {
    char key[128];
    snprintf(key, sizeof key, "gpu.%d.%s.%d.%s", gpu, part, number, VALUES[value].key);
    return state_text(key, text, size);
}

static bool link_text(int gpu, int link, enum value value, char *text, size_t size) {
    return link != NO_LINK && state_has(KEY_LINK) && part_text(gpu, "link", link, value, text, size);
}

void mig_text(int gpu, int mig, enum value value, char *text, size_t size) {
    if (mig == NO_MIG || !state_has(KEY_MIG) || !part_text(gpu, "mig", mig, value, text, size)) {
        value_text(gpu, value, text, size);
    }
}

long long mig_number(int gpu, int mig, enum value value) {
    char text[64];
    mig_text(gpu, mig, value, text, sizeof text);
    return strtoll(text, NULL, 0);
}

void value_text(int gpu, enum value value, char *text, size_t size) {
    if (!state_value(gpu, value, text, size)) {
        snprintf(text, size, "%s", VALUES[value].fallback);
    }
}

long long link_number(int gpu, int link, enum value value) {
    char text[64];
    bool set = link_text(gpu, link, value, text, sizeof text) || state_value(gpu, value, text, sizeof text);
    return strtoll(set ? text : VALUES[value].fallback, NULL, 0);
}

long long value_number(int gpu, enum value value) {
    return link_number(gpu, NO_LINK, value);
}

static unsigned long long advanced(int gpu, long long start, double per_second) {
    char text[64];
    value_text(gpu, VALUE_counted_from, text, sizeof text);
    double elapsed = text[0] == '\0' ? 0.0 : wall_seconds() - strtod(text, NULL);
    return (unsigned long long)start + (elapsed > 0.0 ? (unsigned long long)(elapsed * per_second) : 0);
}

unsigned long long counter(int gpu, int link, enum value value, enum value rate) {
    double per_second = rate == VALUE_NONE ? 0.0 : (double)link_number(gpu, link, rate);
    return advanced(gpu, link_number(gpu, link, value), per_second);
}

unsigned long long energy_millijoules(int gpu) {
    char text[64];
    value_text(gpu, VALUE_energy_millijoules_per_second, text, sizeof text);
    /* A milliwatt is a millijoule a second. */
    enum value rate = text[0] == '\0' ? VALUE_power_milliwatts : VALUE_energy_millijoules_per_second;
    return counter(gpu, NO_LINK, VALUE_energy_millijoules, rate);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double wall_seconds(void) {
    return seconds(CLOCK_REALTIME);
}

double steady_seconds(void) {
    return seconds(CLOCK_MONOTONIC);
}
