/* The state file as a sorted table in memory, exchanged under one lock when the file changes. */
#include "state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    struct stat file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table current;

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

static void add_line(struct table *table, char *line) {
    char *equals = strchr(line, '=');
    if (equals == NULL || line[0] == '#') {
        return;
    }
    *equals = '\0';
    table->entries[table->entry_count++] = (struct entry){line, equals + 1};
    static const char *const PARTS[KEY_KINDS] = {"return.", "delay.", ".link.", ".mig."};
    for (size_t kind = 0; kind < KEY_KINDS; kind++) {
        table->has[kind] |= strstr(line, PARTS[kind]) != NULL;
    }
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
    if (table->entries == NULL || table->xids == NULL) {
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
}

static void load(const char *path) {
    struct table fresh = {0};
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
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool state_refresh(void) {
    const char *path = getenv("NVML_FAKE_STATE");
    struct stat file;
    pthread_mutex_lock(&lock);
    if (path != NULL && stat(path, &file) == 0 && (current.text == NULL || !same_file(&file, &current.file))) {
        load(path);
    }
    bool known = current.text != NULL;
    pthread_mutex_unlock(&lock);
    return known;
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
    pthread_mutex_lock(&lock);
    bool has = current.has[kind];
    pthread_mutex_unlock(&lock);
    return has;
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
