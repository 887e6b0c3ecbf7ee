/* A program that shuts itself in a sandbox after it has begun to use the library: a system call that the library made
 * before is refused from then on. Pools still end with their handles. */
#include "common.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* membarrier fails with EPERM from here on; all else is as it was. False where this machine has no filters. */
static int shut_in(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static gvmm_pool *pool;
static gvmm_stream *stream;

static void *pairs(void *unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        uint64_t address = 0;
        OK(gvmm_pool_alloc(pool, 4096, stream, &address));
        OK(gvmm_pool_free(pool, address));
    }
    return NULL;
}

int main(void) {
    gvmm_device *device = open_host();
    stream = make_stream(device);
    OK(gvmm_pool_create(device, NULL, &pool));
    pairs(NULL);
    if (!shut_in()) fprintf(stderr, "no filters here: all calls are allowed\n");
    for (int round = 0; round < 3; round++) {
        pthread_t others[3];
        for (int i = 0; i < 3; i++) CHECK(!pthread_create(&others[i], NULL, pairs, NULL));
        for (int i = 0; i < 3; i++) CHECK(!pthread_join(others[i], NULL));
        OK(gvmm_pool_destroy(pool));
        OK(gvmm_pool_create(device, NULL, &pool));
        pairs(NULL);
    }
    OK(gvmm_pool_destroy(pool));
    OK(gvmm_stream_destroy(stream));
    OK(gvmm_device_close(device)); /* IN_USE, were a pool left */
    return 0;
}
