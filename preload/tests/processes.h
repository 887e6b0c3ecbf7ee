/* Scenes of play.c about threads, forks and the end of a process. */
static void *many(void *arg) {
    for (int i = 0; i < 50; i++) {
        Buffer b = make((int)(U)arg % 2, MIB2);
        access_to(b.at, b.size, (int)(U)arg % 2, 3);
        drop(b);
    }
    return NULL;
}
static void threads(void) {
    pthread_t t[8];
    for (U i = 0; i < 8; i++) pthread_create(&t[i], NULL, many, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    statuses = 0; /* of several threads, in no order */
}
static void forks(void) {
    Buffer b = make(0, MIB2);
    fflush(stdout);
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        size_t granule = 0;
        Prop p = prop(0);
        R answer = V(MemGetAllocationGranularity)(&granule, &p, 0);
        V(MemUnmap)(b.at, b.size); /* of the fake's own tables, which the child has a copy of */
        _exit(answer);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    access_to(b.at, b.size, 0, 3);
    drop(b);
}
static volatile int stop;
static void *looks(void *at) {
    while (!stop) flags_of((U)at, 0);
    return NULL;
}
/* Children are made while other threads are within calls. */
static void forks_busy(void) {
    enum { CHILDREN = 200 };
    pthread_t t[4];
    int good = 0;
    Buffer b = make(0, MIB2);
    access_to(b.at, b.size, 0, 3);
    fflush(stdout);
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, looks, (void *)b.at);
    for (int i = 0, status = 0; i < CHILDREN && good == i; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20); /* a hang is seen, and ends the scene */
            _exit(flags_of(b.at, 0) == 3 ? 42 : 1);
        }
        waitpid(child, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 42;
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    printf("children %d of %d\n", good, CHILDREN);
    drop(b);
}
static void *endless(void *arg) {
    size_t granule = 0;
    Prop p = prop(0);
    for (;;) V(MemGetAllocationGranularity)(&granule, &p, 0);
    return arg;
}
/* Nothing is given back, and threads call while the process ends. */
static void leaves(void) {
    pthread_t t;
    for (int i = 0; i < 4; i++) pthread_create(&t, NULL, endless, NULL);
    Buffer b = make(0, MIB2);
    access_to(b.at, b.size, 0, 3);
    usleep(20000);
    printf("ends\n");
    exit(0);
}
/* A daemon closes all that it does not know, and its own file then has any of the numbers. */
static void closes_all(void) {
    drop(make(0, MIB2));
    FILE *own = tmpfile();
    for (int fd = 3; fd < 1024; fd++) if (fd != fileno(own)) dup2(fileno(own), fd);
    for (int fd = 16; fd < 64; fd++) close(fd); /* for the stand-in's blocks */
    drop(make(0, MIB2));
    printf("own %d\n", (int)lseek(fileno(own), 0, SEEK_END));
}
