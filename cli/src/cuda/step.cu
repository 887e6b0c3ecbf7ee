// The command buffer of `gvmm steps` on a GPU: looks at a slot's data and writes a slot's data, as `pattern.rs`
// does on the host. One block of threads a slot; a slot's address is baked into the launch's parameters.

typedef unsigned long long u64;
typedef unsigned int u32;

static const u32 SLOTS = 16;
static const u32 NONE = ~0u;
static const u64 WHOLE = 64 << 10; // up to that many bytes all are looked at; of more, a word in each
static const u64 EDGE = 64;        // and so many at both ends

struct Slot {
    u64 address;
    u64 bytes;
    u32 check;   // which seed the data must be of, or NONE
    u32 write;   // which seed's data is written then, or NONE
    u32 counter; // where words that are wrong are counted
    u32 unused;
};

struct Table {
    Slot slots[SLOTS];
};

__device__ u64 mix(u64 x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The words that are looked at, by number.
struct Words {
    u64 bytes, tail, middle, count;

    __device__ explicit Words(u64 size) : bytes(size)
    {
        if (bytes <= WHOLE) {
            tail = bytes;
            middle = 0;
            count = (bytes + 7) / 8;
            return;
        }
        tail = (bytes - EDGE) & ~7ull;
        middle = (bytes - 8) / WHOLE;
        count = EDGE / 8 + middle + (bytes - tail + 7) / 8;
    }

    __device__ u64 at(u64 i) const
    {
        const u64 head = EDGE / 8;
        if (bytes <= WHOLE || i < head)
            return i * 8;
        i -= head;
        return i < middle ? (i + 1) * WHOLE : tail + (i - middle) * 8;
    }

    __device__ u32 length(u64 at) const
    {
        return bytes - at < 8 ? (u32)(bytes - at) : 8;
    }
};

__device__ u64 mask(u32 length)
{
    return length == 8 ? ~0ull : (1ull << 8 * length) - 1;
}

__device__ u64 load(const unsigned char *from, u32 length)
{
    if (length == 8)
        return *reinterpret_cast<const volatile u64 *>(from);
    u64 word = 0;
    for (u32 i = 0; i < length; i++)
        word |= (u64)*const_cast<const volatile unsigned char *>(from + i) << 8 * i;
    return word;
}

__device__ void store(unsigned char *to, u64 word, u32 length)
{
    if (length == 8) {
        *reinterpret_cast<u64 *>(to) = word;
        return;
    }
    for (u32 i = 0; i < length; i++)
        to[i] = (unsigned char)(word >> 8 * i);
}

extern "C" __global__ void gvmm_step(const Table table, const u64 *seeds, u32 *wrong)
{
    const Slot slot = table.slots[blockIdx.x];
    const Words words(slot.bytes);
    unsigned char *memory = reinterpret_cast<unsigned char *>(slot.address);
    if (slot.check != NONE) {
        const u64 seed = seeds[slot.check];
        u32 bad = 0;
        for (u64 i = threadIdx.x; i < words.count; i += blockDim.x) {
            const u64 at = words.at(i);
            const u32 length = words.length(at);
            bad += ((load(memory + at, length) ^ mix(seed + at)) & mask(length)) != 0;
        }
        if (bad)
            atomicAdd(wrong + slot.counter, bad);
    }
    __syncthreads();
    if (slot.write != NONE) {
        const u64 seed = seeds[slot.write];
        for (u64 i = threadIdx.x; i < words.count; i += blockDim.x) {
            const u64 at = words.at(i);
            store(memory + at, mix(seed + at), words.length(at));
        }
    }
}

// Keeps the stream busy for so many nanoseconds, so that what is enqueued behind runs without gaps.
extern "C" __global__ void gvmm_spin(u64 nanoseconds)
{
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
