/* The values of one GPU as the state file gives them, or their defaults from values.def. */
#ifndef NVML_FAKE_VALUES_H
#define NVML_FAKE_VALUES_H

#include <stddef.h>

enum value {
#define VALUE(key, fallback) VALUE_##key,
#include "values.def"
#undef VALUE
    VALUE_NONE
};

/* Stands where the number of a link or a MIG device may stand, for values of the whole GPU. */
#define NO_LINK (-1)
#define NO_MIG (-1)

/* Copies a value of a GPU, cut to `size`; empty where neither the file nor values.def has one. */
void value_text(int gpu, enum value value, char *text, size_t size);

long long value_number(int gpu, enum value value);

/* The value of one link: its own, else that of all links. */
long long link_number(int gpu, int link, enum value value);

/* The value of one MIG device: its own, else that of the GPU. */
void mig_text(int gpu, int mig, enum value value, char *text, size_t size);
long long mig_number(int gpu, int mig, enum value value);

/* A counter now: what the file says, plus `rate` a second since `counted_from`. `rate` may be VALUE_NONE. */
unsigned long long counter(int gpu, int link, enum value value, enum value rate);

unsigned long long energy_millijoules(int gpu);

/* Seconds since 1970, and of a clock that only runs forward. */
double wall_seconds(void);
double steady_seconds(void);

#endif
