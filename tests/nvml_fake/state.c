/* The state file as a sorted table in memory, exchanged under one lock when the file changes. */
#include "state.h"

#include "call.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct entry {
    const char *key;
    const char *value;
};

struct table {
    char *text;
    struct entry *entries;
    size_t entry_count;
    struct xid_event *xids;
    size_t xid_count;
    bool has[KEY_KINDS];
    const char **values;
    struct stat file;
    uint64_t stamp;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table current;
/* What is asked for in every call is kept so that nobody needs the lock. */
static atomic_bool has[KEY_KINDS];
static _Atomic(uint64_t) loaded;
static _Atomic(const volatile uint64_t *) stamp;

static int by_key(const void *left, const void *right) {
    return strcmp(((const struct entry *)left)->key, ((const struct entry *)right)->key);
}

static int by_number(const void *left, const void *right) {
    unsigned long long a = ((const struct xid_event *)left)->number;
    unsigned long long b = ((const struct xid_event *)right)->number;
    return (a > b) - (a < b);
}

static char *read_all(int file, size_t size) {
    char *text = malloc(size + 1);
    size_t filled = 0;
    while (text != NULL && filled < size) {
        ssize_t got = read(file, text + filled, size - filled);
        if (got <= 0) {
            break;
        }
        filled += (size_t)got;
    }
    if (text != NULL) {
        text[filled] = '\0';
    }
    return text;
}

static const char *const NAMES[] = {
#define VALUE(key, fallback) #key,
#include "values.def"
#undef VALUE
};
enum { VALUES_OF_A_GPU = sizeof NAMES / sizeof *NAMES };

/* Values of whole GPUs are asked for so often that each has a place of its own. */
static void note_value(struct table *table, const char *key, const char *value) {
    int gpu, length = 0;
    if (sscanf(key, "gpu.%d.%n", &gpu, &length) != 1 || length == 0 || gpu < 0 || gpu >= MAX_GPUS) {
        return;
    }
    for (size_t i = 0; i < VALUES_OF_A_GPU; i++) {
        if (strcmp(NAMES[i], key + length) == 0) {
            table->values[(size_t)gpu * VALUES_OF_A_GPU + i] = value;
        }
    }
}

static void add_line(struct table *table, char *line) {
    char *equals = strchr(line, '=');
    if (equals == NULL || line[0] == '#') {
        return;
    }
    *equals = '\0';
    table->entries[table->entry_count++] = (struct entry){line, equals + 1};
    static const char *const PARTS[KEY_KINDS] = {
        [KEY_RETURN] = "return.", [KEY_DELAY] = "delay.", [KEY_LINK] = ".link.",
        [KEY_MIG] = ".mig.",      [KEY_HANG] = "hang",    [KEY_LOST] = ".lost",
        [KEY_MISSING] = ".missing", [KEY_BLOCK] = "block", [KEY_UNLOADED] = "unloaded",
        [KEY_CHARGE] = "charge.",
    };
    for (size_t kind = 0; kind < KEY_KINDS; kind++) {
        table->has[kind] |= strstr(line, PARTS[kind]) != NULL;
    }
    note_value(table, line, equals + 1);
    struct xid_event xid;
    if (sscanf(line, "xid.%llu", &xid.number) == 1 && sscanf(equals + 1, "%d %llu", &xid.gpu, &xid.code) == 2) {
        table->xids[table->xid_count++] = xid;
    }
}

static bool parse(struct table *table) {
    size_t lines = 1;
    for (const char *at = table->text; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    table->entries = calloc(lines, sizeof *table->entries);
    table->xids = calloc(lines, sizeof *table->xids);
    table->values = calloc((size_t)MAX_GPUS * VALUES_OF_A_GPU, sizeof *table->values);
    if (table->entries == NULL || table->xids == NULL || table->values == NULL) {
        return false;
    }
    char *rest = NULL;
    for (char *line = strtok_r(table->text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        add_line(table, line);
    }
    qsort(table->entries, table->entry_count, sizeof *table->entries, by_key);
    qsort(table->xids, table->xid_count, sizeof *table->xids, by_number);
    return true;
}

static void discard(struct table *table) {
    free(table->text);
    free(table->entries);
    free(table->xids);
    free(table->values);
}

static void load(const char *path, uint64_t stamp) {
    struct table fresh = {.stamp = stamp};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return;
    }
    if (fstat(file, &fresh.file) == 0) {
        fresh.text = read_all(file, (size_t)fresh.file.st_size);
    }
    close(file);
    if (fresh.text == NULL || !parse(&fresh)) {
        discard(&fresh);
        return;
    }
    discard(&current);
    current = fresh;
    for (size_t kind = 0; kind < KEY_KINDS; kind++) {
        atomic_store(&has[kind], current.has[kind]);
    }
    atomic_store(&loaded, current.stamp);
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A number beside the state file that grows with each change, where there is one: looking at it costs no system call. */
static const volatile uint64_t *open_stamp(const char *path) {
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s.stamp", path);
    int file = open(beside, O_RDONLY | O_CLOEXEC);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(uint64_t), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) {
        close(file);
    }
    return page == MAP_FAILED ? NULL : page;
}

bool state_refresh(void) {
    const volatile uint64_t *seen = atomic_load(&stamp);
    if (seen != NULL && *seen == atomic_load(&loaded)) {
        return true;
    }
    const char *path = getenv("NVML_FAKE_STATE");
    struct stat file;
    pthread_mutex_lock(&lock);
    if (path != NULL && atomic_load(&stamp) == NULL) {
        atomic_store(&stamp, open_stamp(path));
    }
    seen = atomic_load(&stamp);
    uint64_t now = seen == NULL ? 0 : *seen;
    if (path != NULL && stat(path, &file) == 0 &&
        (current.text == NULL || now != current.stamp || !same_file(&file, &current.file))) {
        load(path, now);
    }
    bool known = current.text != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

bool state_value(int gpu, size_t value, char *text, size_t size) {
    pthread_mutex_lock(&lock);
    const char *found = current.values == NULL || gpu < 0 || gpu >= MAX_GPUS
                            ? NULL
                            : current.values[(size_t)gpu * VALUES_OF_A_GPU + value];
    if (found != NULL) {
        size_t length = strnlen(found, size - 1);
        memcpy(text, found, length);
        text[length] = '\0';
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

bool state_text(const char *key, char *text, size_t size) {
    pthread_mutex_lock(&lock);
    const struct entry wanted = {key, NULL};
    const struct entry *found = current.entry_count == 0 ? NULL
                                                         : bsearch(&wanted, current.entries, current.entry_count,
                                                                   sizeof *current.entries, by_key);
    if (found != NULL) {
        snprintf(text, size, "%s", found->value);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

double state_number(const char *key, double fallback) {
    char text[64];
    return state_text(key, text, sizeof text) ? strtod(text, NULL) : fallback;
}

bool state_has(enum key_kind kind) {
    return atomic_load(&has[kind]);
}

bool state_next_xid(unsigned long long after, struct xid_event *event) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < current.xid_count && !found; i++) {
        found = current.xids[i].number > after;
        if (found) {
            *event = current.xids[i];
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

unsigned long long state_last_xid(void) {
    pthread_mutex_lock(&lock);
    unsigned long long last = current.xid_count == 0 ? 0 : current.xids[current.xid_count - 1].number;
    pthread_mutex_unlock(&lock);
    return last;
}
