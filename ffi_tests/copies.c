/* A second copy of the library in one process: its handles are foreign here, and it works beside the first. */
#include "common.h"
#include <dlfcn.h>
#include <unistd.h>

static void copy_file(const char *from, const char *to) {
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in != NULL && out != NULL);
    static char bytes[1 << 16];
    size_t n;
    while ((n = fread(bytes, 1, sizeof bytes, in)) > 0) CHECK(fwrite(bytes, 1, n, out) == n);
    CHECK(fclose(in) == 0 && fclose(out) == 0);
}

int main(void) {
    const char *library = getenv("GVMM_TEST_LIBRARY"), *folder = getenv("GVMM_TEST_FOLDER");
    CHECK(library != NULL && folder != NULL);
    char path[4096];
    snprintf(path, sizeof path, "%s/copy_%d.so", folder, (int)getpid());
    copy_file(library, path);
    void *second = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (second == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(second != NULL);
    unlink(path);
    gvmm_status (*open_there)(const gvmm_device_desc *, gvmm_device **);
    gvmm_status (*close_there)(gvmm_device *);
    gvmm_status (*create_there)(gvmm_device *, uint64_t, uint32_t, gvmm_block **);
    gvmm_status (*destroy_there)(gvmm_block *);
    *(void **)&open_there = dlsym(second, "gvmm_device_open");
    *(void **)&close_there = dlsym(second, "gvmm_device_close");
    *(void **)&create_there = dlsym(second, "gvmm_block_create");
    *(void **)&destroy_there = dlsym(second, "gvmm_block_destroy");
    CHECK(open_there != NULL && close_there != NULL && create_there != NULL && destroy_there != NULL);
    CHECK(open_there != gvmm_device_open);

    gvmm_device *here = open_host(), *there = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST, .ordinal = 0};
    OK(open_there(&desc, &there));
    CHECK(here != there);
    gvmm_block *ours = make_block(here, GRANULE), *theirs = NULL;
    OK(create_there(there, GRANULE, 0, &theirs));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_device_close(there));
    EXPECT(GVMM_ERROR_INVALID_HANDLE, gvmm_block_destroy(theirs));
    CHECK(close_there(here) == GVMM_ERROR_INVALID_HANDLE);
    CHECK(destroy_there(ours) == GVMM_ERROR_INVALID_HANDLE);
    OK(gvmm_block_destroy(ours));
    OK(destroy_there(theirs));
    OK(gvmm_device_close(here));
    OK(close_there(there));
    return 0;
}
