// XLA's CPU plugin, as TorchTPU 0.2.0 can load it. TorchTPU hands PJRT_Client_Create
// options that the plugin refuses: this library passes on one of its own in their place,
// a CPU device. REAL_PJRT: path of the plugin. Places are those of PJRT's C interface 0.115.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*call)(void *);
enum { SIZE = 8192, CREATE = 120 };  // bytes of the table, place of PJRT_Client_Create

static char table[SIZE];
static call real_create;
static struct {
    size_t size; void *extension; const char *name; size_t length;
    int type; long long value; size_t count;
} option = {sizeof option, 0, "cpu_device_count", 16, 1, 1, 1};  // type 1: a whole number

static void *create(void *arguments) {
    size_t *field = arguments;
    field[2] = (size_t)&option;
    field[3] = 1;
    return real_create(arguments);
}

const void *GetPjrtApi(void) {
    if (real_create) return table;
    const char *path = getenv("REAL_PJRT");
    void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
    if (!plugin) { fprintf(stderr, "REAL_PJRT: %s\n", dlerror()); abort(); }
    char *real = ((void *(*)(void))dlsym(plugin, "GetPjrtApi"))();
    size_t size = *(size_t *)real;
    if (size > SIZE) abort();
    memcpy(table, real, size);
    memcpy(&real_create, table + CREATE, sizeof real_create);
    call ours = create;
    memcpy(table + CREATE, &ours, sizeof ours);
    return table;
}
