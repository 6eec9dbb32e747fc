/* The state file: `key=value` lines, read again whenever the file changed. All functions are safe in any thread. */
#ifndef NVML_FAKE_STATE_H
#define NVML_FAKE_STATE_H

#include <stdbool.h>
#include <stddef.h>

#define TEXT_SIZE 4096

struct xid_event {
    unsigned long long number;
    int gpu;
    unsigned long long code;
};

/* Reads the file named by NVML_FAKE_STATE if it changed; false while none could ever be read. */
bool state_refresh(void);

/* Copies the value of `key`, cut to `size`; false where the file does not set it. */
bool state_text(const char *key, char *text, size_t size);

/* Copies the value of a GPU (`gpu.<slot>.<key>`), by its number in values.def; false where the file does not set it. */
bool state_value(int gpu, size_t value, char *text, size_t size);

/* The value of `key` as a number, or `fallback` where the file does not set it. */
double state_number(const char *key, double fallback);

/* Kinds of keys of which a file may have none at all: then nobody needs to look for one. */
enum key_kind {
    KEY_RETURN,
    KEY_DELAY,
    KEY_LINK,
    KEY_MIG,
    KEY_HANG,
    KEY_LOST,
    KEY_MISSING,
    KEY_BLOCK,
    KEY_UNLOADED,
    KEY_CHARGE,
    KEY_KINDS
};

/* Whether the file sets any key of this kind. */
bool state_has(enum key_kind kind);

/* Finds the Xid event with the lowest number above `after`; false where there is none. */
bool state_next_xid(unsigned long long after, struct xid_event *event);

/* The highest number of an Xid event so far, or 0. */
unsigned long long state_last_xid(void);

#endif
