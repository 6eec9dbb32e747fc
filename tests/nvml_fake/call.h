/* What every entry point does first: wait while hung, be slow, fail as told. */
#ifndef NVML_FAKE_CALL_H
#define NVML_FAKE_CALL_H

#include "nvml.h"
#include "values.h"

#define MAX_GPUS 64
#define MAX_MIGS 7

/* Leaves the calling function with its error, if there is one. */
#define TRY(expression)                  \
    do {                                 \
        nvmlReturn_t failed = (expression); \
        if (failed != NVML_SUCCESS) {    \
            return failed;               \
        }                                \
    } while (0)

#define REQUIRE(condition)                      \
    do {                                        \
        if (!(condition)) {                     \
            return NVML_ERROR_INVALID_ARGUMENT; \
        }                                       \
    } while (0)

/* Blocks while the state file says `hang=all`, or hangs this GPU (a negative one is none). */
void wait_while_hung(int gpu);

/* Begins a call that needs no device. */
nvmlReturn_t begin(const char *function);

/* Begins a call on a device, which it checks, and gives its slot. */
nvmlReturn_t begin_device(nvmlDevice_t device, const char *function, int *gpu);

/* The same on a GPU or one of its MIG devices, whose number is NO_MIG for the GPU itself. */
nvmlReturn_t begin_part(nvmlDevice_t device, const char *function, int *gpu, int *mig);

/* Begins a call that looks a device up by its slot. */
nvmlReturn_t begin_lookup(int gpu, const char *function);

/* The return code that the state file sets for one function or field of a GPU, or success. */
nvmlReturn_t told_return(int gpu, const char *what);

/* Whether a slot holds a GPU that was there at boot. */
int is_present(int gpu);

nvmlDevice_t device_of(int gpu);
nvmlDevice_t mig_device_of(int gpu, int mig);
int slot_of(nvmlDevice_t device);

/* Takes as long as the state file says that a function or field of a GPU takes (a negative one is none). */
void be_slow(int gpu, const char *what);

/* Sleeps for a short time. */
void rest(double seconds);

/* Copies text to a caller's buffer of `length` bytes. */
nvmlReturn_t give_text(const char *text, char *out, unsigned int length);

#endif
