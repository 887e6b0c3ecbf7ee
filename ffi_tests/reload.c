/* dlopen, use, dlclose with work pending, and again: the library stays, its threads run on, handles stay good. This
   program is linked with the library too; the copy that comes and goes is another file. */
#include "common.h"
#include <dlfcn.h>
#include <unistd.h>

static volatile int ran;
static void run(void *user_data) {
    usleep(20000);
    ran += *(int *)user_data;
}

int main(void) {
    const char *library = getenv("GVMM_TEST_LIBRARY"), *folder = getenv("GVMM_TEST_FOLDER");
    CHECK(library != NULL && folder != NULL);
    char path[4096], command[9000];
    snprintf(path, sizeof path, "%s/reload_%d.so", folder, (int)getpid());
    snprintf(command, sizeof command, "cp '%s' '%s'", library, path);
    CHECK(system(command) == 0);
    int one = 1;
    gvmm_device *device = NULL;
    gvmm_stream *stream = NULL;
    gvmm_status (*open_there)(const gvmm_device_desc *, gvmm_device **) = NULL;
    for (int round = 0; round < 3; round++) {
        void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (loaded == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(loaded != NULL);
        gvmm_status (*create)(gvmm_device *, gvmm_stream **);
        gvmm_status (*call)(gvmm_stream *, void (*)(void *), void *);
        gvmm_status (*synchronize)(gvmm_stream *);
        void *open_now = dlsym(loaded, "gvmm_device_open");
        *(void **)&create = dlsym(loaded, "gvmm_stream_create");
        *(void **)&call = dlsym(loaded, "gvmm_stream_host_function");
        *(void **)&synchronize = dlsym(loaded, "gvmm_stream_synchronize");
        CHECK(open_now != NULL && create != NULL && call != NULL && synchronize != NULL);
        if (round == 0) {
            *(void **)&open_there = open_now;
            gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 0};
            OK(open_there(&desc, &device));
            OK(create(device, &stream));
        } else {
            void *before = NULL;
            memcpy(&before, &open_there, sizeof before);
            CHECK(open_now == before); /* it never went */
            OK(synchronize(stream));
            CHECK(ran == round);
        }
        OK(call(stream, run, &one)); /* pending while the library is closed */
        CHECK(dlclose(loaded) == 0);
    }
    usleep(100000);
    CHECK(ran == 3);
    unlink(path);
    return 0;
}
