/* Decides on a byte that was never written: valgrind must say so, else it was not on. */
#include "common.h"

int main(void) {
    char *volatile byte = (char *)malloc(1); /* volatile, so that no compiler sees it coming */
    if (*byte & 1) puts("odd");
    free(byte);
    return 0;
}
