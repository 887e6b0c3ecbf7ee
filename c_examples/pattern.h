/* Data that depends on step, slot and position, so that stale or misplaced bytes are seen.
 *
 * Of up to 64 KiB every byte is written and checked; of more, the first and the last 64 bytes and a
 * word in every 64 KiB (a real kernel would write all of it; here that would only cost time and
 * memory).
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* The seed of the data that goes into the step number `tick`, or comes out of it. */
uint64_t pattern_in(uint64_t tick, uint64_t slot);
uint64_t pattern_out(uint64_t tick, uint64_t slot);

void pattern_write(uint64_t address, uint64_t size_bytes, uint64_t seed);
bool pattern_matches(uint64_t address, uint64_t size_bytes, uint64_t seed);

#endif
