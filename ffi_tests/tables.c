/* The table of functions: what a program that loads the library while it runs gets, and who gets none. */
#include "common.h"

#include <dlfcn.h>

/* What a program without the library's header could do: the table's beginning is all that it must know. */
static const gvmm_api *load(uint32_t version, size_t size_bytes) {
    const char *path = getenv("GVMM_TEST_LIBRARY");
    CHECK(path != NULL);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    gvmm_status (*get)(uint32_t, size_t, const gvmm_api **) = NULL;
    *(void **)&get = dlsym(library, "gvmm_get_api");
    CHECK(get != NULL);
    const gvmm_api *api = NULL;
    return get(version, size_bytes, &api) == GVMM_STATUS_SUCCESS ? api : NULL;
}

int main(void) {
    const gvmm_api *api = load(GVMM_VERSION_NUMBER, sizeof(gvmm_api)), *untouched = NULL;
    CHECK(api != NULL);
    CHECK(api->struct_size == sizeof(gvmm_api) && api->version == GVMM_VERSION_NUMBER && api->reserved == 0);
    CHECK(api->version_number() == gvmm_version_number());
    void (*const *functions)(void) = (void (*const *)(void))(const void *)(api + 1);
    for (size_t i = (sizeof(gvmm_api) - offsetof(gvmm_api, version_number)) / sizeof functions[0]; i > 0; i--)
        CHECK(functions[-(ptrdiff_t)i] != NULL);

    /* Older programs have less, and newer ones get nothing. */
    CHECK(load(0, 0) == api && load(GVMM_VERSION_NUMBER, offsetof(gvmm_api, map)) == api);
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_get_api(GVMM_VERSION_NUMBER + 1, 0, &untouched));
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_get_api(GVMM_VERSION_NUMBER + 1000000, 0, &untouched));
    EXPECT(GVMM_ERROR_UNKNOWN_VERSION, gvmm_get_api(GVMM_VERSION_NUMBER, sizeof(gvmm_api) + 8, &untouched));
    CHECK(untouched == NULL);

    /* The functions are those of the header: their handles and messages are the same. */
    gvmm_device *device = NULL;
    gvmm_device_desc desc = {.struct_size = sizeof desc, .driver = GVMM_DRIVER_HOST};
    OK(api->device_open(&desc, &device));
    gvmm_reservation *reservation = NULL;
    uint64_t address = 0;
    OK(api->reserve(device, GRANULE, NULL, &reservation, &address));
    OK(gvmm_reservation_destroy(reservation));
    CHECK(api->reservation_destroy(reservation) == GVMM_ERROR_INVALID_HANDLE);
    CHECK(last_detail().status == GVMM_ERROR_INVALID_HANDLE);
    CHECK(strcmp(api->status_name(GVMM_ERROR_IN_USE), "GVMM_ERROR_IN_USE") == 0);
    OK(api->device_close(device));
    return 0;
}
