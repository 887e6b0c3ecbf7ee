#include "pattern.h"

#include <string.h>

#define WHOLE_BYTES (64u << 10)
#define EDGE_BYTES 64u
#define WORD_BYTES 8u

/* What is done with one word: copies it to or compares it with memory. */
typedef bool word_function(unsigned char *memory, uint64_t word, uint64_t size_bytes);

/* One to one and well mixed (the finalizer of splitmix64). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t pattern_in(uint64_t tick, uint64_t slot) {
    return mix(mix(2 * tick) + slot);
}

uint64_t pattern_out(uint64_t tick, uint64_t slot) {
    return mix(mix(2 * tick + 1) + slot);
}

static bool write_word(unsigned char *memory, uint64_t word, uint64_t size_bytes) {
    memcpy(memory, &word, size_bytes);
    return true;
}

static bool word_matches(unsigned char *memory, uint64_t word, uint64_t size_bytes) {
    return memcmp(memory, &word, size_bytes) == 0;
}

/* Goes through [begin, end), begin being a multiple of a word. */
static bool each_word(unsigned char *memory, uint64_t begin, uint64_t end, uint64_t seed,
                      word_function *function) {
    for (uint64_t at = begin; at < end; at += WORD_BYTES) {
        uint64_t size_bytes = end - at < WORD_BYTES ? end - at : WORD_BYTES;
        if (!function(memory + at, mix(seed + at), size_bytes)) return false;
    }
    return true;
}

static bool each_sample(uint64_t address, uint64_t size_bytes, uint64_t seed,
                        word_function *function) {
    /* On the host driver a device address is an address of this process. */
    unsigned char *memory = (unsigned char *)(uintptr_t)address;
    if (size_bytes <= WHOLE_BYTES) return each_word(memory, 0, size_bytes, seed, function);
    if (!each_word(memory, 0, EDGE_BYTES, seed, function)) return false;
    for (uint64_t at = WHOLE_BYTES; at + WORD_BYTES <= size_bytes; at += WHOLE_BYTES) {
        if (!each_word(memory, at, at + WORD_BYTES, seed, function)) return false;
    }
    uint64_t tail = (size_bytes - EDGE_BYTES) / WORD_BYTES * WORD_BYTES;
    return each_word(memory, tail, size_bytes, seed, function);
}

void pattern_write(uint64_t address, uint64_t size_bytes, uint64_t seed) {
    each_sample(address, size_bytes, seed, write_word);
}

bool pattern_matches(uint64_t address, uint64_t size_bytes, uint64_t seed) {
    return each_sample(address, size_bytes, seed, word_matches);
}
