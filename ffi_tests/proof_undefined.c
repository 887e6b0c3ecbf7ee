/* Adds past the largest int: the undefined-behaviour sanitizer must say so, else it was not on. */
#include "common.h"
#include <limits.h>

int main(int argc, char **argv) {
    (void)argv;
    volatile int most = INT_MAX;
    volatile int sum = most + argc;
    return sum == 0;
}
