/* Writes past the end of a buffer: the address sanitizer must say so, else it was not on. */
#include "common.h"

int main(int argc, char **argv) {
    (void)argv;
    volatile char *volatile bytes = (char *)malloc(8); /* volatile, so that no compiler sees it coming */
    bytes[7 + argc] = 1;
    free((void *)bytes);
    return 0;
}
