/*
 * gvmm: addresses that stay while GPU memory moves.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * THE MODEL. A block is physical memory of a device, without an address. A reservation is a range of
 * addresses, without memory. A mapping puts a block, as a whole, into a reservation; access says what
 * each device may do there. gvmm_remap changes any number of mappings in one transaction.
 *
 * A command buffer (a graph) has addresses recorded into it. Its buffers are its slots, and a binding
 * gives each slot an address that stays while the buffers move from step to step:
 *
 *     gvmm_binding_create(device, NULL, slots, n, sizeof slots[0], &binding);
 *     uint64_t generation = 0;
 *     for each step:
 *         status = gvmm_binding_begin(binding, stream, buffers, n, sizeof buffers[0], generation, NULL);
 *         if (status == GVMM_STATUS_RECORD_AGAIN) {
 *             gvmm_binding_addresses(binding, addresses, n, &generation);
 *             record the command buffer with these addresses, and begin once more
 *         }
 *         launch the command buffer on the stream
 *         gvmm_binding_end(binding, NULL);
 *
 * STATUSES. A function answers a gvmm_status. GVMM_STATUS_SUCCESS is 0; GVMM_STATUS_RECORD_AGAIN is a
 * success too; every other is a failure, GVMM_ERROR_..., the same for the same event on every driver.
 * Outputs are written on success only, all of them or none; after a failure nothing has changed, unless
 * the function's comment says otherwise. Each comment lists the function's own statuses; besides those
 * any function may answer NULL_POINTER (a pointer that may not be NULL is), INVALID_HANDLE, POISONED,
 * FORKED, INTERNAL, OUT_OF_HOST_MEMORY, where it takes an array OUT_OF_RANGE (the array passes the end of
 * memory), and where the driver is called DEVICE_LOST and DRIVER_ERROR.
 * gvmm_last_error_message tells in words what failed on this thread, gvmm_last_error_detail in numbers
 * (the driver's own code, the element of an array that is to blame). Nothing here prints or ends the
 * process.
 *
 * HANDLES. gvmm_device, gvmm_block and so on are opaque. A handle's value is a key that is looked up,
 * never dereferenced: a handle that is stale, used for another type, or of another loaded copy of this
 * library is GVMM_ERROR_INVALID_HANDLE, not a crash. A call keeps its objects alive. Destroying what is
 * in use is GVMM_ERROR_IN_USE and changes nothing. A process has room for 2^20 living handles of a type.
 *
 * STRUCTS passed by pointer begin with struct_size; set it to sizeof. Zero the rest: zero is the
 * default of every field. A struct shorter than this library's (an older caller's) gets the defaults,
 * a longer one must be zero beyond what this library knows, else GVMM_ERROR_UNKNOWN_VERSION. Of an
 * output struct only struct_size is read, and what both sides know is written. Arrays are a pointer, a
 * count and the distance of two elements in bytes, so that an element may be embedded in one of yours;
 * a pointer may be NULL if its count is 0.
 *
 * STREAMS. A parameter `void *stream` takes the vendor's own (CUstream, hipStream_t, an in-order
 * immediate command list) or a gvmm_stream. NULL is the vendor's default stream where the device has
 * GVMM_CAPABILITY_NULL_STREAM, else GVMM_ERROR_INVALID_STREAM. The host driver knows gvmm_stream only.
 *
 * ADDRESSES of a device are uint64_t; 0 is none.
 *
 * THREADS. Each comment says one of: thread-safe (any threads, any time); externally synchronized (not
 * two threads in the same object at once); this thread (it concerns the calling thread only).
 *
 * LOADING. A program may link the library, or load it while it runs and take all functions from the table
 * that gvmm_get_api gives. gvmm.hpp makes C++17 classes of either.
 *
 * ENVIRONMENT. GVMM_DRIVER names the driver of GVMM_DRIVER_AUTO (auto, cuda, hip, level_zero, host),
 * GVMM_LOG what is logged to standard error (error, warn, info, debug, trace). They and the others, which
 * the README lists, are read once; a wrong value gives a warning in the log, and the default. gvmm_configure
 * sets the same for a program that cannot set its environment.
 *
 * FORK AND EXIT. After fork, a child of a process that used this library gets GVMM_ERROR_FORKED from
 * every function that answers a status, but for the two that tell the last error. The library stays loaded
 * once loaded, dlclose or not. A process may exit with work pending.
 */

#ifndef GVMM_H
#define GVMM_H

#include <stddef.h>
#include <stdint.h>

/** The header's version: major * 1,000,000 + minor * 1,000 + patch. */
#define GVMM_VERSION_NUMBER 1000

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The version. ---- */

/**
 * Gives the version of the library that is loaded; compare with GVMM_VERSION_NUMBER, the header's.
 *
 * State: needs none and changes none; works in a child after fork.
 * Returns: major * 1,000,000 + minor * 1,000 + patch.
 * Threads: thread-safe.
 */
uint32_t gvmm_version_number(void);

/**
 * Gives the version of the library that is loaded, as text such as `0.1.0`.
 *
 * State: needs none and changes none; works in a child after fork.
 * Returns: a string that lives as long as the process, never NULL.
 * Threads: thread-safe.
 */
const char *gvmm_version_string(void);

/* ---- Statuses. ---- */

/**
 * What a function answers: `GVMM_STATUS_...` (0 and 1: its outputs are written) or `GVMM_ERROR_...`
 * (nothing is written and nothing has changed, unless the function's comment says otherwise). Values are
 * grouped by hundreds and never reused.
 */
typedef int32_t gvmm_status;

/** The call did what it says. */
#define GVMM_STATUS_SUCCESS 0

/** Success of another kind, of `gvmm_binding_begin` only: no step was started; the addresses are new. */
#define GVMM_STATUS_RECORD_AGAIN 1

/** Caller: a value that is not one of those allowed. */
#define GVMM_ERROR_INVALID_ARGUMENT 100

/** Caller: NULL where a pointer is needed. */
#define GVMM_ERROR_NULL_POINTER 101

/** Caller: a size that is 0, too large, or no multiple of what it must be. */
#define GVMM_ERROR_INVALID_SIZE 102

/** Caller: an address, an offset or an alignment that is not aligned as it must be. */
#define GVMM_ERROR_MISALIGNED 103

/** Caller: an offset, an index or a range that lies outside. */
#define GVMM_ERROR_OUT_OF_RANGE 104

/** Caller: a handle that is stale, doubled, of another type or of another copy of the library. */
#define GVMM_ERROR_INVALID_HANDLE 105

/** Caller: the object still has children or users. */
#define GVMM_ERROR_IN_USE 106

/** Caller: the range is mapped already. */
#define GVMM_ERROR_ALREADY_MAPPED 107

/** Caller: nothing is mapped there. */
#define GVMM_ERROR_NOT_MAPPED 108

/** Caller: the range covers a mapping in part only. */
#define GVMM_ERROR_PARTIAL_MAPPING 109

/** Caller: the call does not fit the object's state (begin twice, end without begin). */
#define GVMM_ERROR_WRONG_STATE 110

/** Caller: another thread is inside the same object. */
#define GVMM_ERROR_BUSY 111

/** Caller: one block behind two slots of which one is written. */
#define GVMM_ERROR_ALIASED 112

/** Caller: slices of one copy overlap. */
#define GVMM_ERROR_OVERLAP 113

/** Caller: a stream that does not exist, or NULL where the driver has no default stream. */
#define GVMM_ERROR_INVALID_STREAM 114

/** Caller: the stream is being captured, and the call must not be. */
#define GVMM_ERROR_STREAM_CAPTURING 115

/** Caller: the number of elements differs from what the object was made for. */
#define GVMM_ERROR_COUNT_MISMATCH 116

/** Caller: a struct or an array element of a size that this version does not know. */
#define GVMM_ERROR_UNKNOWN_VERSION 117

/** Caller: a plan of other slots, or another plan than the one that was agreed on. */
#define GVMM_ERROR_PLAN_MISMATCH 118

/** Memory: the host's memory is used up. */
#define GVMM_ERROR_OUT_OF_HOST_MEMORY 200

/** Memory: the device's memory is used up. */
#define GVMM_ERROR_OUT_OF_DEVICE_MEMORY 201

/** Memory: no free range of addresses of that size. */
#define GVMM_ERROR_OUT_OF_ADDRESS_SPACE 202

/** Memory: the process has no file descriptor left. */
#define GVMM_ERROR_OUT_OF_FILE_DESCRIPTORS 203

/** Memory: the process may hold no more mappings (`vm.max_map_count`). */
#define GVMM_ERROR_MAP_LIMIT 204

/** Driver: no such driver on this machine. */
#define GVMM_ERROR_DRIVER_NOT_FOUND 300

/** Driver: it is older than what is needed. */
#define GVMM_ERROR_DRIVER_TOO_OLD 301

/** Driver: no device of that number. */
#define GVMM_ERROR_NO_DEVICE 302

/** Driver: this device or driver cannot do that. */
#define GVMM_ERROR_UNSUPPORTED 303

/** Driver: the device is lost; the process must be restarted. */
#define GVMM_ERROR_DEVICE_LOST 304

/** Driver: work on a stream failed, mostly since it touched memory that it had no access to; the stream has stopped. */
#define GVMM_ERROR_DEVICE_FAULT 305

/** Driver: any other failure of a driver call; the native code tells (`gvmm_last_error_detail`). */
#define GVMM_ERROR_DRIVER_ERROR 306

/**
 * Ours: a failed call could not be undone. The entries concerned are unmapped, their blocks are kept, and
 * the next remap rebuilds them.
 */
#define GVMM_ERROR_RANGE_LOST 400

/** Ours: a defect of this library; please report it with the message. */
#define GVMM_ERROR_INTERNAL 401

/** Ours: an earlier defect left this object half done; destroy it. */
#define GVMM_ERROR_POISONED 402

/** Ours: the process is a child made by fork after the library was used. */
#define GVMM_ERROR_FORKED 403

/**
 * Gives the name of a status as it is spelled in this header, such as `GVMM_ERROR_IN_USE`.
 *
 * State: needs none and changes none; works in a child after fork.
 * Parameters: `status`, any number; one that this version does not know gives `GVMM_STATUS_UNKNOWN`.
 * Returns: a string that lives as long as the process, never NULL.
 * Threads: thread-safe.
 */
const char *gvmm_status_name(gvmm_status status);

/* ---- Handles. ---- */

/**
 * Memory with an address: a block in a reservation of its own, or plain device memory where there is no
 * virtual memory.
 */
typedef struct gvmm_allocation gvmm_allocation;

/** The slots of one command buffer, each with an address that stays. */
typedef struct gvmm_binding gvmm_binding;

/** Physical memory of a device, without an address. A mapping gives it one. */
typedef struct gvmm_block gvmm_block;

/** A device of one driver. A handle: a key that is looked up, never dereferenced. */
typedef struct gvmm_device gvmm_device;

/** What a capture kept: work that runs at each launch. */
typedef struct gvmm_graph gvmm_graph;

/** A caching allocator of one device. */
typedef struct gvmm_pool gvmm_pool;

/** A range of device addresses that stays until it is destroyed. */
typedef struct gvmm_reservation gvmm_reservation;

/** A long range of addresses that grows and shrinks by chunks. */
typedef struct gvmm_segment gvmm_segment;

/** A stream of ours, for callers who have none. It is passed as the `void *stream` of any function. */
typedef struct gvmm_stream gvmm_stream;

/** A number in host memory that streams write, for the caller to look at. */
typedef struct gvmm_timeline gvmm_timeline;

/* ---- The last error of a thread. ---- */

/** No element of an array is to blame. */
#define GVMM_ENTRY_NONE UINT64_MAX

/** Operation of an error detail: none in particular. */
#define GVMM_OPERATION_NONE 0

/** Operation: opening a device. */
#define GVMM_OPERATION_OPEN 1

/** Operation: a query. */
#define GVMM_OPERATION_QUERY 2

/** Operation: reserving a range. */
#define GVMM_OPERATION_RESERVE 3

/** Operation: freeing a range, or a pool's block. */
#define GVMM_OPERATION_FREE 4

/** Operation: creating a block. */
#define GVMM_OPERATION_CREATE 5

/** Operation: releasing a block. */
#define GVMM_OPERATION_RELEASE 6

/** Operation: mapping. */
#define GVMM_OPERATION_MAP 7

/** Operation: unmapping. */
#define GVMM_OPERATION_UNMAP 8

/** Operation: setting access. */
#define GVMM_OPERATION_SET_ACCESS 9

/** Operation: allocating. */
#define GVMM_OPERATION_ALLOCATE 10

/** Operation: giving plain memory back to the driver. */
#define GVMM_OPERATION_DEALLOCATE 11

/** Operation: copying. */
#define GVMM_OPERATION_COPY 12

/** Operation: using a timeline. */
#define GVMM_OPERATION_TIMELINE 13

/** Operation: using a stream. */
#define GVMM_OPERATION_STREAM 14

/** Operation: capturing. */
#define GVMM_OPERATION_CAPTURE 15

/** Operation: launching a graph. */
#define GVMM_OPERATION_LAUNCH 16

/** Operation: exporting or importing. */
#define GVMM_OPERATION_SHARE 17

/** Operation: remapping. */
#define GVMM_OPERATION_REMAP 18

/** Operation: retiring. */
#define GVMM_OPERATION_RETIRE 19

/** Operation: creating a binding. */
#define GVMM_OPERATION_BIND 20

/** Operation: beginning a step. */
#define GVMM_OPERATION_BEGIN 21

/** Operation: ending a step. */
#define GVMM_OPERATION_END 22

/** Operation: destroying. */
#define GVMM_OPERATION_DESTROY 23

/** The last failure of this thread, as numbers. */
typedef struct gvmm_error_detail {
    /** `sizeof(gvmm_error_detail)`. */
    size_t struct_size;
    /** What the call answered; GVMM_STATUS_SUCCESS where no call has failed on this thread. */
    gvmm_status status;
    /** What was being done: `GVMM_OPERATION_...`. */
    uint32_t operation;
    /** The driver's own code (a `CUresult`, a `hipError_t`, a `ze_result_t`, an `errno`). */
    int64_t native_code;
    /** 1 where `native_code` counts. */
    uint32_t has_native;
    /** 0. */
    uint32_t reserved;
    /** Which element of the caller's array is to blame, or GVMM_ENTRY_NONE. */
    uint64_t entry;
    /** Where, or 0. */
    uint64_t address;
    /** How many bytes, or 0. */
    uint64_t size_bytes;
} gvmm_error_detail;

/**
 * Copies out the message that the last failing call on this thread left. Calls that succeed leave it, and
 * so do this function and `gvmm_last_error_detail` when they fail.
 *
 * State: changes none.
 * Parameters: `out_message`, room for `capacity` bytes; a longer message is cut; it ends with a NUL unless
 * `capacity` is 0, and then it may be NULL; `out_needed`, the bytes that the whole message needs, with the
 * NUL; 1 where no call has failed.
 * Statuses: none of its own.
 * Threads: this thread.
 */
gvmm_status gvmm_last_error_message(char *out_message,
                                    size_t capacity,
                                    size_t *out_needed);

/**
 * Gives the last failure on this thread as numbers.
 *
 * State: changes none.
 * Parameters: `out_detail`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: this thread.
 */
gvmm_status gvmm_last_error_detail(gvmm_error_detail *out_detail);

/* ---- The log. ---- */

/** Log level: nothing. */
#define GVMM_LOG_LEVEL_OFF 0

/** Log level: something failed that no status tells. */
#define GVMM_LOG_LEVEL_ERROR 1

/** Log level: something is not as it should be; the call went on. */
#define GVMM_LOG_LEVEL_WARN 2

/** Log level: what was found and chosen. */
#define GVMM_LOG_LEVEL_INFO 3

/** Log level: what is done. */
#define GVMM_LOG_LEVEL_DEBUG 4

/** Log level: every step of it. */
#define GVMM_LOG_LEVEL_TRACE 5

/** A function that takes log messages. The strings live during the call only. */
typedef void (*gvmm_log_callback)(uint32_t level,
                                  const char *target,
                                  const char *message,
                                  void *user_data);

/**
 * Sends log messages to a function of the caller's. Without one, they go to standard error where
 * `GVMM_LOG` is set, else nowhere.
 *
 * State: after success new messages go to `callback`. A message that another thread is just handing over
 * may still reach the function before: keep its `user_data`. Messages of a call are handed over as it
 * returns, with no lock of ours held, so the function may call this library.
 * Parameters: `callback`, or NULL for none; it may be called from several threads at once and must not
 * unwind; `user_data`, handed to it, may be NULL; `max_level`, `GVMM_LOG_LEVEL_...`, the most detailed
 * level wanted.
 * Statuses: INVALID_ARGUMENT (`max_level`), IN_USE (the program is written in Rust and has a logger of its
 * own).
 * Threads: thread-safe.
 */
gvmm_status gvmm_log_set_callback(gvmm_log_callback callback,
                                  void *user_data,
                                  uint32_t max_level);

/* ---- Devices. ---- */

/** The driver that `GVMM_DRIVER` names, else the first that this machine has. */
#define GVMM_DRIVER_AUTO 0

/** NVIDIA's. */
#define GVMM_DRIVER_CUDA 1

/** AMD's. */
#define GVMM_DRIVER_HIP 2

/** Intel's. */
#define GVMM_DRIVER_LEVEL_ZERO 3

/** The host's own memory and threads. */
#define GVMM_DRIVER_HOST 4

/** Bit of `gvmm_device_info.capabilities`: reserve, map, set access and unmap are there at all. */
#define GVMM_CAPABILITY_VIRTUAL_MEMORY 1

/** Bit: a block may be mapped at several addresses at once. */
#define GVMM_CAPABILITY_ALIASING 2

/** Bit: access is given to single devices; without it, to all at once. */
#define GVMM_CAPABILITY_DEVICE_ACCESS 4

/** Bit: access may be set on a part of a reservation; without it, only on the whole. */
#define GVMM_CAPABILITY_RANGE_ACCESS 8

/** Bit: one set-access may span several neighbouring mappings. */
#define GVMM_CAPABILITY_JOINED_ACCESS 16

/** Bit: many copies cost one launch. */
#define GVMM_CAPABILITY_JOINT_COPIES 32

/** Bit: blocks can be exported to and imported from other processes as file descriptors. */
#define GVMM_CAPABILITY_SHARING 64

/** Bit: the host can read and write device addresses. */
#define GVMM_CAPABILITY_HOST_TOUCH 128

/** Bit: host functions can be enqueued on a `gvmm_stream`, and such streams captured into graphs. */
#define GVMM_CAPABILITY_HOST_FUNCTIONS 256

/** Bit: blocks are backed by huge pages (of the host driver). */
#define GVMM_CAPABILITY_HUGE_PAGES 512

/** Bit: NULL names the device's default stream. */
#define GVMM_CAPABILITY_NULL_STREAM 1024

/** Capability: a binding's copies can be recorded into a command buffer. */
#define GVMM_CAPABILITY_ROUTES 2048

/** Bit: a stream may be made to wait for work that is enqueued later. */
#define GVMM_CAPABILITY_EARLY_WAITS 4096

/**
 * Bit: nothing speaks against changing addresses in a command buffer that is there already; without it, a planner lists no
 * patches.
 */
#define GVMM_CAPABILITY_PATCHES 8192

/** Which device to open; all zero but `struct_size` is the default. */
typedef struct gvmm_device_desc {
    /** `sizeof(gvmm_device_desc)`. */
    size_t struct_size;
    /** `GVMM_DRIVER_...`. */
    uint32_t driver;
    /** The device's number among its driver's, from 0. */
    uint32_t ordinal;
} gvmm_device_desc;

/** What a device is. */
typedef struct gvmm_device_info {
    /** `sizeof(gvmm_device_info)`. */
    size_t struct_size;
    /** `GVMM_DRIVER_...`, never AUTO. */
    uint32_t driver;
    /** The device's number, from 0. */
    uint32_t ordinal;
    /** How many devices the driver has. */
    uint32_t device_count;
    /** 0. */
    uint32_t reserved;
    /** `GVMM_CAPABILITY_...` bits. */
    uint64_t capabilities;
    /** The smallest unit that the device maps, in bytes: a power of two. */
    uint64_t granularity_bytes;
    /** Its memory in bytes; 0 where unknown. */
    uint64_t total_bytes;
    /** Bytes a second that its memory moves, reads and writes both counted; 0 where unknown. */
    uint64_t bandwidth_bytes_per_s;
    /** Its name, cut to 63 bytes, with a NUL. */
    char name[64];
    /** The table of simulated costs that each call is made to take, or empty: then times are real. */
    char simulated_costs[32];
} gvmm_device_info;

/** How many driver calls of each sort. */
typedef struct gvmm_call_counts {
    /** `sizeof(gvmm_call_counts)`. */
    size_t struct_size;
    /** Ranges reserved. */
    uint64_t reserve;
    /** Ranges freed. */
    uint64_t free;
    /** Blocks created. */
    uint64_t create;
    /** Blocks released. */
    uint64_t release;
    /** Blocks mapped. */
    uint64_t map;
    /** Mappings unmapped. */
    uint64_t unmap;
    /** Set-access calls. */
    uint64_t set_access;
    /** Launches of copies. */
    uint64_t copy_launches;
    /** Writes of a timeline enqueued on a stream. */
    uint64_t timeline_writes;
} gvmm_call_counts;

/**
 * Counts the devices of a driver, opening the driver where that has not been done.
 *
 * State: after success the driver is open for the life of the process; after a failure a later call tries
 * again.
 * Parameters: `driver`, `GVMM_DRIVER_...`; `out_count`, a number of devices.
 * Statuses: INVALID_ARGUMENT (no such driver number), DRIVER_NOT_FOUND, DRIVER_TOO_OLD.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_count(uint32_t driver,
                              uint32_t *out_count);

/**
 * Opens a device. Opening one twice gives two handles of the same device: they share its memory budget,
 * and objects made through one may be used with the other.
 *
 * State: after success the handle lives until `gvmm_device_close`.
 * Parameters: `desc`, which device, or NULL for device 0 of GVMM_DRIVER_AUTO; `out_device`, the handle.
 * Statuses: INVALID_ARGUMENT (no such driver number), UNKNOWN_VERSION, DRIVER_NOT_FOUND, DRIVER_TOO_OLD,
 * NO_DEVICE.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_open(const gvmm_device_desc *desc,
                             gvmm_device **out_device);

/**
 * Closes a handle of a device.
 *
 * State: before, everything made through this handle has been destroyed; after success the handle is
 * invalid. Closing the last handle of a device waits until what was retired there has been unmapped.
 * Parameters: `device`, the handle.
 * Statuses: IN_USE (something made through this handle still lives; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_close(gvmm_device *device);

/**
 * Says what a device is.
 *
 * State: changes none.
 * Parameters: `device`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_query(gvmm_device *device, gvmm_device_info *out_info);

/**
 * Reads a device's memory figures.
 *
 * State: changes none.
 * Parameters: `device`; `out_free_bytes` and `out_total_bytes`, in bytes, 0 where the driver cannot tell.
 * Statuses: those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_memory(gvmm_device *device,
                               uint64_t *out_free_bytes,
                               uint64_t *out_total_bytes);

/**
 * Counts the calls to the driver that this library made for a device, through whichever handle, since it
 * was opened; failed ones count.
 *
 * State: changes none.
 * Parameters: `device`; `out_counts`, whose `struct_size` is set; numbers of calls.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_counters(gvmm_device *device,
                                 gvmm_call_counts *out_counts);

/**
 * Unmaps and frees what was retired and whose streams have passed. Never waits.
 *
 * State: after success `out_collected` retired things are gone; those whose streams have not passed
 * remain.
 * Parameters: `device`; `out_collected`, a number of things.
 * Statuses: those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_collect(gvmm_device *device, uint64_t *out_collected);

/**
 * Waits until the streams of everything that was retired have passed, and unmaps and frees it.
 *
 * State: after success nothing is retired any more.
 * Parameters: `device`.
 * Statuses: STREAM_CAPTURING (a stream to wait for is being captured), DEVICE_FAULT, those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_drain(gvmm_device *device);

/**
 * Finds the block behind an address. Never waits.
 *
 * State: changes none.
 * Parameters: `device`; `address`, any; `out_block`, the block's handle (not a new one: do not destroy it
 * for this call); `out_offset_bytes`, the bytes from the block's start to `address`.
 * Statuses: NOT_MAPPED (no block with a handle lies there).
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_find(gvmm_device *device,
                             uint64_t address,
                             gvmm_block **out_block,
                             uint64_t *out_offset_bytes);

/* ---- Streams and graphs of this library. ---- */

/** A function that a stream calls. */
typedef void (*gvmm_host_function)(void *user_data);

/**
 * Makes a stream of a device.
 *
 * State: after success the stream is idle and lives until `gvmm_stream_destroy`.
 * Parameters: `device`; `out_stream`, the handle.
 * Statuses: UNSUPPORTED (the driver has no streams of ours), OUT_OF_HOST_MEMORY.
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_create(gvmm_device *device, gvmm_stream **out_stream);

/**
 * Waits for what is enqueued on a stream and ends it; a capture under way is dropped. What
 * `gvmm_stream_forget` does is done first.
 *
 * State: after success the handle is invalid. Not to be called by a function that runs on this stream.
 * Parameters: `stream`.
 * Statuses: STREAM_CAPTURING (someone must still wait for work before the capture: end the capture first).
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_destroy(gvmm_stream *stream);

/**
 * Waits until all that was enqueued on a stream has run.
 *
 * State: after success the stream is idle. Not to be called by a function that runs on this stream.
 * Parameters: `stream`.
 * Statuses: STREAM_CAPTURING, DEVICE_FAULT (a copy touched memory that it had no access to; the stream has
 * stopped).
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_synchronize(gvmm_stream *stream);

/**
 * Enqueues a call of a function. On a capturing stream it becomes part of the graph and runs at each
 * launch.
 *
 * State: `function` runs on a thread of ours once all before it on the stream has run.
 * Parameters: `stream`; `function`, which may call this library but must not wait for its own stream,
 * unwind or end the thread; `user_data`, handed to it, which must live until it has run (for a graph:
 * until the graph is destroyed and its launches have run); may be NULL.
 * Statuses: UNSUPPORTED (no GVMM_CAPABILITY_HOST_FUNCTIONS).
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_host_function(gvmm_stream *stream,
                                      gvmm_host_function function,
                                      void *user_data);

/**
 * Begins a capture: what is enqueued on the stream from here on is kept instead of run.
 *
 * State: before, the stream does not capture; after success it does.
 * Parameters: `stream`.
 * Statuses: WRONG_STATE (it does already), UNSUPPORTED.
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_capture_begin(gvmm_stream *stream);

/**
 * Ends a capture and gives what it kept.
 *
 * State: before, the stream captures; after success it does not, and the graph lives until
 * `gvmm_graph_destroy`.
 * Parameters: `stream`; `out_graph`, the handle.
 * Statuses: WRONG_STATE (it does not capture), UNSUPPORTED.
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_capture_end(gvmm_stream *stream, gvmm_graph **out_graph);

/**
 * Says whether a stream is being captured.
 *
 * State: changes none.
 * Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own; `out_capturing`, 1 or 0.
 * Statuses: INVALID_STREAM.
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_is_capturing(gvmm_device *device, void *stream, uint32_t *out_capturing);

/**
 * Tells the library that a vendor's stream is about to be destroyed: whoever must later wait for work on
 * it has that recorded now.
 *
 * State: after success the library touches the stream no more, until it is given again.
 * Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own.
 * Statuses: INVALID_STREAM, STREAM_CAPTURING (something must be recorded and cannot be).
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_forget(gvmm_device *device,
                               void *stream);

/**
 * Enqueues everything that a graph kept.
 *
 * State: changes none but the stream's queue. A graph may be launched any number of times.
 * Parameters: `graph`; `stream`, of the same device.
 * Statuses: STREAM_CAPTURING, INVALID_ARGUMENT (of another device), WRONG_STATE (it has copies of a binding that are
 * gone with their generation; not every driver can tell).
 * Threads: thread-safe.
 */
gvmm_status gvmm_graph_launch(gvmm_graph *graph,
                              gvmm_stream *stream);

/**
 * Gives up a graph; launches under way still finish.
 *
 * State: after success the handle is invalid.
 * Parameters: `graph`.
 * Statuses: none of its own.
 * Threads: thread-safe.
 */
gvmm_status gvmm_graph_destroy(gvmm_graph *graph);

/* ---- Devices and queues that a framework already uses. ---- */

/** The group of a queue that the driver is to find out. */
#define GVMM_QUEUE_GROUP_UNKNOWN UINT32_MAX

/** A device as a framework knows it; all zero but `struct_size` is the first device of GVMM_DRIVER_AUTO. */
typedef struct gvmm_attach_desc {
    /** `sizeof(gvmm_attach_desc)`. */
    size_t struct_size;
    /** `GVMM_DRIVER_...`. */
    uint32_t driver;
    /** 0. */
    uint32_t reserved;
    /** CUDA: a `CUcontext`, or 0 for a device's primary one. HIP: 0. Level Zero: a `ze_context_handle_t`. */
    uint64_t native_context;
    /**
     * CUDA: a `CUdevice`, not looked at where a context is given. HIP: a `hipDevice_t`. Level Zero: a
     * `ze_device_handle_t`.
     */
    uint64_t native_device;
} gvmm_attach_desc;

/**
 * Opens the device that a framework in this process uses, by the driver's own handles. On Level Zero memory is of use
 * in its own context only, so this is the way to memory that the framework's kernels can touch; on CUDA and HIP it
 * only finds the device's number: their memory is the same in every context, and streams of any context of the device
 * are taken.
 *
 * State: after success the handle lives until `gvmm_device_close`; the framework's context must live longer.
 * Parameters: `desc`, whose handles must be live (a driver may crash over one that is not); `out_device`, the handle.
 * Statuses: NULL_POINTER, UNKNOWN_VERSION, INVALID_ARGUMENT (no such driver number, or no handles), DRIVER_NOT_FOUND,
 * DRIVER_TOO_OLD, NO_DEVICE, UNSUPPORTED (the host driver has no contexts).
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_attach(const gvmm_attach_desc *desc,
                               gvmm_device **out_device);

/**
 * Makes a stream of a framework's queue, where streams of the driver are no plain handles: on Level Zero a
 * `ze_command_queue_handle_t` (an in-order immediate command list is passed as it is).
 *
 * State: after success `out_stream` lives until `gvmm_stream_destroy`, which gives up the handle only; the queue stays
 * its owner's, and must live longer.
 * Parameters: `device`, in whose context the queue was made; `native_queue`, live; `queue_group`, the ordinal of the
 * queue's group, or GVMM_QUEUE_GROUP_UNKNOWN where the driver can tell; `out_stream`, the handle.
 * Statuses: INVALID_STREAM (0 is no queue), INVALID_ARGUMENT (this driver cannot tell the group), UNSUPPORTED (streams of
 * this driver are passed as they are).
 * Threads: thread-safe.
 */
gvmm_status gvmm_stream_wrap_queue(gvmm_device *device,
                                   uint64_t native_queue,
                                   uint32_t queue_group,
                                   gvmm_stream **out_stream);

/* ---- Timelines: numbers that streams write, for the caller to look at. ---- */

/**
 * Makes a timeline: a number in host memory that streams write, so that the caller sees without a call how far they
 * are. Memory that a stream may still use can be freed once a number written behind its last use has come.
 *
 * State: after success the number is 0 and lives until `gvmm_timeline_destroy`.
 * Parameters: `device`; `out_timeline`, the handle; `out_value`, where the number stands, aligned and written whole:
 * read it atomically, with acquire order.
 * Statuses: UNSUPPORTED (streams of this driver write no numbers: Level Zero's), OUT_OF_HOST_MEMORY.
 * Threads: thread-safe.
 */
gvmm_status gvmm_timeline_create(gvmm_device *device,
                                 gvmm_timeline **out_timeline,
                                 const uint64_t **out_value);

/**
 * Enqueues a write: once the stream has run all that was enqueued before, the timeline's number becomes `value`.
 *
 * State: changes none but the stream's queue. Write the numbers of one timeline on one stream: the last to arrive stands.
 * Parameters: `timeline`; `stream`, a `gvmm_stream` or the vendor's own; `value`, at most 2^63 - 1, and not below one that
 * was written before.
 * Statuses: INVALID_ARGUMENT (another value), INVALID_STREAM, STREAM_CAPTURING, those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_timeline_write(gvmm_timeline *timeline,
                                void *stream,
                                uint64_t value);

/**
 * Gives up a timeline. Its number must not be looked at any more.
 *
 * State: before, the streams have written what was enqueued; after success the handle is invalid.
 * Parameters: `timeline`.
 * Statuses: IN_USE (a write is pending; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_timeline_destroy(gvmm_timeline *timeline);

/* ---- Blocks: physical memory. ---- */

/** Flag of `gvmm_block_adopt`: the native handle becomes ours and is released with the block. */
#define GVMM_BLOCK_OWNED 1

/** Flag of `gvmm_block_create`: the block can be exported. */
#define GVMM_BLOCK_EXPORTABLE 2

/** What a block is. */
typedef struct gvmm_block_info {
    /** `sizeof(gvmm_block_info)`. */
    size_t struct_size;
    /** Its size in bytes. */
    uint64_t size_bytes;
    /** A number that no other block of this process has or had. */
    uint64_t allocation_id;
    /** The driver's own handle (`CUmemGenericAllocationHandle` and the like). */
    uint64_t native_handle;
    /** The number of its device. */
    uint32_t ordinal;
    /** At how many places the caller has mapped it; mappings of bindings do not count. */
    uint32_t mapping_count;
} gvmm_block_info;

/**
 * Creates a block of device memory.
 *
 * State: after success the block lives until `gvmm_block_destroy`; it is not mapped.
 * Parameters: `device`; `size_bytes`, a multiple of the device's granularity; `flags`, 0 or
 * GVMM_BLOCK_EXPORTABLE; `out_block`, the handle.
 * Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`), OUT_OF_DEVICE_MEMORY, OUT_OF_FILE_DESCRIPTORS,
 * UNSUPPORTED.
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_create(gvmm_device *device,
                              uint64_t size_bytes,
                              uint32_t flags,
                              gvmm_block **out_block);

/**
 * Makes a block of a native handle that the caller got from the driver.
 *
 * State: after success the block lives until `gvmm_block_destroy`. Without GVMM_BLOCK_OWNED the native
 * handle stays the caller's, who keeps it until the block is destroyed and its last mapping is gone.
 * Parameters: `device`; `native_handle`, the driver's; `size_bytes`, its size, a multiple of the
 * granularity; `flags`, 0 or GVMM_BLOCK_OWNED; `out_block`, the handle.
 * Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`, a native handle of 0, or with GVMM_BLOCK_OWNED one of
 * the host driver that the library owns already), INVALID_HANDLE (the driver does not know the native
 * handle, as far as it can tell: a vendor's may crash on a number that is none), UNSUPPORTED.
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_adopt(gvmm_device *device,
                             uint64_t native_handle,
                             uint64_t size_bytes,
                             uint32_t flags,
                             gvmm_block **out_block);

/**
 * Says what a block is.
 *
 * State: changes none.
 * Parameters: `block`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_query(gvmm_block *block, gvmm_block_info *out_info);

/**
 * Gives up a block.
 *
 * State: after success the handle is invalid; the memory goes back with the last mapping that a binding or
 * a retired place still has.
 * Parameters: `block`.
 * Statuses: IN_USE (the caller has it mapped, or an allocation owns it; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_destroy(gvmm_block *block);

/**
 * Exports a block for another process.
 *
 * State: after success the descriptor is the caller's to close.
 * Parameters: `block`, made with GVMM_BLOCK_EXPORTABLE; `out_fd`, a file descriptor, close-on-exec.
 * Statuses: WRONG_STATE (not made exportable), UNSUPPORTED (no GVMM_CAPABILITY_SHARING),
 * OUT_OF_FILE_DESCRIPTORS.
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_export(gvmm_block *block, int *out_fd);

/**
 * Makes a block of a descriptor that another process, or this one, exported.
 *
 * State: after success the block lives until `gvmm_block_destroy`. The descriptor stays the caller's and
 * may be closed.
 * Parameters: `device`; `fd`; `size_bytes`, the block's size; `out_block`, the handle.
 * Statuses: INVALID_ARGUMENT (`fd`), INVALID_SIZE, UNSUPPORTED, OUT_OF_FILE_DESCRIPTORS.
 * Threads: thread-safe.
 */
gvmm_status gvmm_block_import(gvmm_device *device,
                              int fd,
                              uint64_t size_bytes,
                              gvmm_block **out_block);

/* ---- Access. ---- */

/** Access mode: nothing. */
#define GVMM_ACCESS_NONE 0

/** Access mode: reading. */
#define GVMM_ACCESS_READ 1

/** Access mode: reading and writing. */
#define GVMM_ACCESS_READ_WRITE 3

/** One line of an access list: what one device may do. */
typedef struct gvmm_access {
    /** The device's number. */
    uint32_t device;
    /** `GVMM_ACCESS_...`. */
    uint32_t mode;
} gvmm_access;

/* ---- Reservations: ranges of addresses. ---- */

/** How to reserve; all zero but `struct_size` is the default. */
typedef struct gvmm_reserve_desc {
    /** `sizeof(gvmm_reserve_desc)`. */
    size_t struct_size;
    /** Alignment of the range in bytes, a power of two; 0 or less than the granularity: the granularity. */
    uint64_t alignment_bytes;
    /** Who may do what with what is mapped there; may be NULL if the count is 0. */
    const gvmm_access *access;
    /** Number of elements; 0: the device itself, read and write. */
    size_t access_count;
    /** Distance of two elements in bytes. */
    size_t access_stride_bytes;
} gvmm_reserve_desc;

/** What a reservation is. */
typedef struct gvmm_reservation_info {
    /** `sizeof(gvmm_reservation_info)`. */
    size_t struct_size;
    /** Its first address. */
    uint64_t address;
    /** Its size in bytes. */
    uint64_t size_bytes;
    /** How many of these bytes are mapped. */
    uint64_t mapped_bytes;
    /** How many blocks are mapped there. */
    uint64_t mapping_count;
} gvmm_reservation_info;

/**
 * Reserves a range of addresses.
 *
 * State: after success the range is the caller's until `gvmm_reservation_destroy`; nothing is mapped
 * there.
 * Parameters: `device`; `size_bytes`, a multiple of the granularity; `desc`, or NULL for the default;
 * `out_reservation`, the handle; `out_address`, the range's first address.
 * Statuses: INVALID_SIZE, MISALIGNED (`alignment_bytes` is no power of two), INVALID_ARGUMENT (an access
 * mode), NO_DEVICE (in the access list), UNKNOWN_VERSION, OUT_OF_ADDRESS_SPACE, UNSUPPORTED.
 * Threads: thread-safe.
 */
gvmm_status gvmm_reserve(gvmm_device *device,
                         uint64_t size_bytes,
                         const gvmm_reserve_desc *desc,
                         gvmm_reservation **out_reservation,
                         uint64_t *out_address);

/**
 * Maps a whole block into a reservation. No access is given: `gvmm_reservation_set_access` does that, or
 * use `gvmm_remap`, which gives the reservation's.
 *
 * State: before, nothing is mapped where the block will be. After success the reservation keeps the
 * block's memory until it is unmapped, and destroying the block is IN_USE.
 * Parameters: `reservation`; `offset_bytes`, a multiple of the granularity; `block`, of the same device.
 * Statuses: MISALIGNED, OUT_OF_RANGE, ALREADY_MAPPED, INVALID_ARGUMENT (of another device), UNSUPPORTED
 * (mapped elsewhere, and no GVMM_CAPABILITY_ALIASING), MAP_LIMIT.
 * Threads: thread-safe.
 */
gvmm_status gvmm_map(gvmm_reservation *reservation,
                     uint64_t offset_bytes,
                     gvmm_block *block);

/**
 * Unmaps, at once: nothing running may use it.
 *
 * State: before, the range is exactly one or several whole mappings; after success it is unmapped.
 * Parameters: `reservation`; `offset_bytes` and `size_bytes`, the range in it.
 * Statuses: INVALID_SIZE, MISALIGNED, OUT_OF_RANGE, NOT_MAPPED, PARTIAL_MAPPING.
 * Threads: thread-safe.
 */
gvmm_status gvmm_reservation_unmap(gvmm_reservation *reservation,
                                   uint64_t offset_bytes,
                                   uint64_t size_bytes);

/**
 * Sets who may do what. On the whole reservation, the list becomes the reservation's own and is applied to
 * all that is mapped, now and later; on exact mappings, it is for these until they are unmapped.
 *
 * State: after success the access is as listed.
 * Parameters: `reservation`; `offset_bytes` and `size_bytes`, the whole or exact mappings; `access`,
 * `count` elements `stride_bytes` apart; 0: the device itself, read and write.
 * Statuses: INVALID_SIZE, MISALIGNED, OUT_OF_RANGE, NOT_MAPPED, PARTIAL_MAPPING, INVALID_ARGUMENT (a
 * mode), NO_DEVICE, UNSUPPORTED, UNKNOWN_VERSION (`stride_bytes`).
 * Threads: thread-safe.
 */
gvmm_status gvmm_reservation_set_access(gvmm_reservation *reservation,
                                        uint64_t offset_bytes,
                                        uint64_t size_bytes,
                                        const gvmm_access *access,
                                        size_t count,
                                        size_t stride_bytes);

/**
 * Says what a reservation is.
 *
 * State: changes none.
 * Parameters: `reservation`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_reservation_query(gvmm_reservation *reservation,
                                   gvmm_reservation_info *out_info);

/**
 * Gives a range of addresses back.
 *
 * State: before, nothing is mapped there. After success the handle is invalid; the addresses are free once
 * what was retired there has been unmapped.
 * Parameters: `reservation`.
 * Statuses: IN_USE (something is mapped there; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_reservation_destroy(gvmm_reservation *reservation);

/* ---- Remap and retire: many mappings in one call. ---- */

/** One place of a remap. */
typedef struct gvmm_remap_entry {
    /** Where. */
    gvmm_reservation *reservation;
    /** The place's offset in it, in bytes, a multiple of the granularity. */
    uint64_t offset_bytes;
    /** What is to be mapped there, as a whole; NULL: nothing, what is there is unmapped. */
    gvmm_block *block;
} gvmm_remap_entry;

/** What a remap did. */
typedef struct gvmm_remap_report {
    /** `sizeof(gvmm_remap_report)`. */
    size_t struct_size;
    /** Map calls to the driver. */
    uint64_t map_calls;
    /** Unmap calls to the driver. */
    uint64_t unmap_calls;
    /** Set-access calls to the driver. */
    uint64_t set_access_calls;
    /** Entries that were already as asked. */
    uint64_t skipped_entries;
    /** Bytes mapped. */
    uint64_t mapped_bytes;
    /** Bytes unmapped. */
    uint64_t unmapped_bytes;
    /** Nanoseconds spent waiting for streams. */
    uint64_t wait_ns;
    /** Nanoseconds spent in driver calls. */
    uint64_t driver_ns;
} gvmm_remap_report;

/**
 * Changes what is mapped at any number of places, of one or several reservations, in one transaction:
 * places that are as asked are skipped (by the block, not by its address), everything is unmapped before
 * anything is mapped, access is set once over each contiguous changed range.
 *
 * State: after success every place is as its entry says and has its reservation's access. If a driver call
 * fails, all is as before; if undoing that fails too, the status is RANGE_LOST: the entries concerned are
 * unmapped, their blocks are still held, and the next remap there rebuilds them.
 * Parameters: `device`; `entries`, `count` elements `stride_bytes` apart; `streams`, `stream_count`
 * streams that the host waits for before the first unmap; if 0, the caller vouches that nothing running
 * uses the places named; `out_report`, what was done, or NULL.
 * Statuses: as `gvmm_map`; INVALID_ARGUMENT (one place named twice, another device's reservation),
 * PARTIAL_MAPPING, INVALID_STREAM, STREAM_CAPTURING, UNKNOWN_VERSION, RANGE_LOST; the last-error detail
 * names the entry.
 * Threads: thread-safe.
 */
gvmm_status gvmm_remap(gvmm_device *device,
                       const gvmm_remap_entry *entries,
                       size_t count,
                       size_t stride_bytes,
                       void *const *streams,
                       size_t stream_count,
                       gvmm_remap_report *out_report);

/**
 * Defers the unmapping of mappings until streams have passed what is enqueued on them now.
 *
 * State: before, a block is mapped at each entry's offset. After success those places count as unmapped
 * for the caller, while the streams still see the blocks; the driver's unmap follows once they have
 * passed, at a later call. Mapping the same block at the same place again takes the mapping back without a
 * driver call.
 * Parameters: `device`; `entries`, `count` elements `stride_bytes` apart, of which `block` is ignored;
 * `streams`, `stream_count` streams, none if 0: then the mappings may go at once.
 * Statuses: NOT_MAPPED, INVALID_ARGUMENT (another device's reservation), INVALID_STREAM, STREAM_CAPTURING,
 * UNKNOWN_VERSION (`stride_bytes`); the last-error detail names the entry.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_retire(gvmm_device *device,
                               const gvmm_remap_entry *entries,
                               size_t count,
                               size_t stride_bytes,
                               void *const *streams,
                               size_t stream_count);

/* ---- Allocations: a block, a range, a mapping and access in one. ---- */

/** What an allocation is. */
typedef struct gvmm_allocation_info {
    /** `sizeof(gvmm_allocation_info)`. */
    size_t struct_size;
    /** Its address. */
    uint64_t address;
    /** Its size in bytes, as asked for. */
    uint64_t size_bytes;
    /** Its block, which ends with the allocation; NULL for plain device memory. */
    gvmm_block *block;
} gvmm_allocation_info;

/**
 * Creates a block, reserves, maps and gives the device access, or undoes all of it.
 *
 * State: after success the memory is accessible until `gvmm_allocation_destroy`.
 * Parameters: `device`; `size_bytes`, above 0, rounded up to the granularity; `out_allocation`, the
 * handle; `out_address`, the memory's address.
 * Statuses: INVALID_SIZE, OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, MAP_LIMIT.
 * Threads: thread-safe.
 */
gvmm_status gvmm_allocation_create(gvmm_device *device,
                                   uint64_t size_bytes,
                                   gvmm_allocation **out_allocation,
                                   uint64_t *out_address);

/**
 * Says what an allocation is.
 *
 * State: changes none.
 * Parameters: `allocation`; `out_info`, whose `struct_size` is set. Its `block` is not a new handle.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_allocation_query(gvmm_allocation *allocation,
                                  gvmm_allocation_info *out_info);

/**
 * Gives an allocation's memory and address back, at once: nothing running may use them.
 *
 * State: after success the handle is invalid, and its block's handle too; memory that a binding has mapped
 * stays until that mapping goes.
 * Parameters: `allocation`.
 * Statuses: IN_USE (the caller has mapped its block elsewhere; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_allocation_destroy(gvmm_allocation *allocation);

/* ---- Copies. ---- */

/** One slice of a copy. */
typedef struct gvmm_copy_slice {
    /** Device address to write to. */
    uint64_t dst;
    /** Device address to read from. */
    uint64_t src;
    /** How many bytes; 0 copies nothing. */
    uint64_t size_bytes;
} gvmm_copy_slice;

/**
 * Enqueues many copies, together where the device can (GVMM_CAPABILITY_JOINT_COPIES). Their order is free.
 * On a capturing stream they become part of the graph.
 *
 * State: changes none but the stream's queue. Nothing to copy enqueues nothing.
 * Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own; `slices`, `count` elements
 * `stride_bytes` apart; `out_launches`, the number of launches that took, or NULL.
 * Statuses: OVERLAP (a byte is written twice, or written and read), INVALID_ARGUMENT (address 0),
 * OUT_OF_RANGE (past 2^64), INVALID_STREAM, UNKNOWN_VERSION (`stride_bytes`); the last-error detail names
 * the slice. Memory without access shows later, as DEVICE_FAULT of the stream.
 * Threads: thread-safe.
 */
gvmm_status gvmm_shadow_copy(gvmm_device *device,
                             void *stream,
                             const gvmm_copy_slice *slices,
                             size_t count,
                             size_t stride_bytes,
                             uint32_t *out_launches);

/* ---- Slots. ---- */

/**
 * Direction of a slot: the command buffer reads and writes it. It is copied in and back where it is
 * copied.
 */
#define GVMM_DIRECTION_IN_OUT 0

/** Direction of a slot: it is only read, and never copied back. */
#define GVMM_DIRECTION_IN 1

/** Direction of a slot: each launch writes every byte of it, and it is never copied in. */
#define GVMM_DIRECTION_OUT 2

/** Flag of a slot: its buffer is registered with a collective; only the buffer's own address will do. */
#define GVMM_SLOT_REGISTERED 1

/** Flag of a slot: its buffer is memory that this library cannot map. */
#define GVMM_SLOT_FOREIGN 2

/**
 * Flag of a slot: it gets an address that is made with the binding and never moves (`gvmm_binding_permanent`), in memory
 * beside the budget of shadows; each step copies to and from it. For buffers that a collective is told of once.
 */
#define GVMM_SLOT_PERMANENT 4

/** Memory space of a slot: the device's memory. */
#define GVMM_MEMORY_SPACE_DEVICE 0

/** Memory space of a slot: the host's memory, which is never mapped or copied. */
#define GVMM_MEMORY_SPACE_HOST 1

/** Threshold: what `XLA_VMM_TMP_COPY_THRESHOLD` says, else automatic. */
#define GVMM_THRESHOLD_DEFAULT 0

/** Threshold: automatic, by `gvmm_compute_threshold` on the slots' sizes and the device's figures. */
#define GVMM_THRESHOLD_AUTO 1

/** Threshold: nothing is copied. */
#define GVMM_THRESHOLD_OFF UINT64_MAX

/** One buffer that the command buffer uses. */
typedef struct gvmm_slot {
    /** How many bytes the command buffer uses, at least 1. */
    uint64_t size_bytes;
    /** `GVMM_DIRECTION_...`. */
    uint32_t direction;
    /** `GVMM_SLOT_...` bits. */
    uint32_t flags;
    /**
     * The alignment of its address in bytes, a power of two; 0 is 256. Above 4096 and above the slot's
     * size, the slot gets no shadow of ours.
     */
    uint64_t alignment_bytes;
    /** `GVMM_MEMORY_SPACE_...`. */
    uint32_t memory_space;
    /** 0. */
    uint32_t reserved;
    /** A fixed address of the caller's own memory that the slot is copied to and from, or 0. */
    uint64_t shadow_address;
} gvmm_slot;

/**
 * Computes the automatic threshold: the largest slot size that is worth copying instead of mapping. A pure
 * function: the same numbers give the same answer, on every rank.
 *
 * State: needs none and changes none.
 * Parameters: `size_bytes`, `count` sizes in bytes, in any order, 0 ignored; `bandwidth_bytes_per_s`,
 * `free_bytes`, `total_bytes`, the device's figures, each 0 where unknown; `out_threshold_bytes`, in
 * bytes, or GVMM_THRESHOLD_OFF where nothing is worth copying.
 * Statuses: none of its own.
 * Threads: thread-safe.
 */
gvmm_status gvmm_compute_threshold(const uint64_t *size_bytes,
                                   size_t count,
                                   uint64_t bandwidth_bytes_per_s,
                                   uint64_t free_bytes,
                                   uint64_t total_bytes,
                                   uint64_t *out_threshold_bytes);

/* ---- The planner of a binding. ---- */

/** How a binding decides: as `GVMM_PLAN` says where it asks for no threshold of its own, else by threshold. */
#define GVMM_PLAN_DEFAULT 0

/** How a binding decides: by the slots' sizes, as the threshold says. */
#define GVMM_PLAN_THRESHOLD 1

/** How a binding decides: by what each action costs, once the first steps were watched. */
#define GVMM_PLAN_AUTO 2

/** Flag of a plan: the caller runs ahead of the device, so that its own time is hidden and the device's counts. */
#define GVMM_PLAN_HOST_HIDDEN 1

/** Flag of a plan: the copies are part of the caller's command buffer. */
#define GVMM_PLAN_COPIES_RECORDED 2

/** An address in a command that must be changed before the command buffer is launched. */
typedef struct gvmm_patch {
    /** The slot's index. */
    uint32_t slot;
    /** The command's number. */
    uint32_t command;
    /** The slot's address from now on. */
    uint64_t address;
} gvmm_patch;

/** What a binding's planner says. Times are predicted, the mean of a step, in picoseconds. */
typedef struct gvmm_plan_info {
    /** `sizeof(gvmm_plan_info)`. */
    size_t struct_size;
    /** The plan's digest: equal plans of slots of equal shapes have the same on every machine. 0 where there is no plan. */
    uint64_t digest;
    /** Slots with GVMM_ACTION_PATCH. */
    uint64_t patched_slots;
    /** Slots that moved since the plan was made although it has them stay, each time counted. */
    uint64_t surprises;
    /** Host time that begin and end take. */
    uint64_t host_ps;
    /** Device time that a step takes longer. */
    uint64_t gpu_ps;
    /** What was made as small as could be: device time, and host time unless it is hidden. */
    uint64_t counted_ps;
    /** Bytes of shadows. */
    uint64_t shadow_bytes;
    /** 1 where the binding has a planner. */
    uint32_t has_planner;
    /** 1 where there is a plan: the watched steps are over, or one was imported. */
    uint32_t has_plan;
    /** 1 where surprises are so frequent that `gvmm_binding_replan` may pay. */
    uint32_t replan_advised;
    /** 0. */
    uint32_t reserved;
} gvmm_plan_info;

/** Why a slot is served as it is. Times are predicted, the mean of a step, in picoseconds. */
typedef struct gvmm_explanation {
    /** `GVMM_ACTION_...`. */
    uint32_t action;
    /** The next best action, or UINT32_MAX where there is no other. */
    uint32_t next_action;
    /** What a step would cost less without this slot. */
    uint64_t cost_ps;
    /** What a step would cost more with the next best action than without this slot. */
    uint64_t next_cost_ps;
    /** In how many of the watched steps after the first the slot moved. */
    uint32_t moved_steps;
    /** 0. */
    uint32_t reserved;
} gvmm_explanation;

/** A command of the caller's command buffer that uses a slot, and so must be patched where the slot is. */
typedef struct gvmm_command_use {
    /** The slot's index. */
    uint32_t slot;
    /** The command's number, of the caller's choice. Slots may share a command. */
    uint32_t command;
} gvmm_command_use;

/** How a binding is to plan; all zero but `struct_size` is the default. */
typedef struct gvmm_plan_desc {
    /** `sizeof(gvmm_plan_desc)`. */
    size_t struct_size;
    /** `GVMM_PLAN_...`. */
    uint32_t mode;
    /** How many steps are watched before the plan is made, 2 to 9; 0: 5. */
    uint32_t watched_steps;
    /** `GVMM_PLAN_HOST_HIDDEN` and `GVMM_PLAN_COPIES_RECORDED` bits. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /**
     * Which commands use which slots, for a caller who can patch them; may be NULL if the count is 0. A slot without
     * one is never patched, and none on a device without GVMM_CAPABILITY_PATCHES. HIP does not update its graphs
     * reliably: there that bit is off, unless `GVMM_QUIRKS=-hip-graph-patch` says that they are right.
     */
    const gvmm_command_use *uses;
    /** Number of elements; 0: the caller cannot patch. */
    size_t use_count;
    /** Distance of two elements in bytes. */
    size_t use_stride_bytes;
} gvmm_plan_desc;

/**
 * Lists what must be patched before the command buffer of the step that was begun last is launched: each command of
 * each GVMM_ACTION_PATCH slot whose address is another one than in the step before. After an abort the same is
 * listed again; after RECORD_AGAIN nothing is, since the new addresses are recorded.
 *
 * State: changes none.
 * Parameters: `binding`; `out_patches`, room for `capacity` elements, or NULL with a capacity of 0 to ask for the number
 * only; `out_count`, the number of patches (also in the report of begin).
 * Statuses: COUNT_MISMATCH (`capacity` is neither 0 nor enough), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_patches(gvmm_binding *binding,
                                 gvmm_patch *out_patches,
                                 size_t capacity,
                                 size_t *out_count);

/**
 * Gives the plan as bytes, for `gvmm_binding_plan_import` on the other ranks of a job. It is there once the watched steps
 * are over. What was repaired since is not in it.
 *
 * State: makes the plan where the watched steps are over and it was not made yet.
 * Parameters: `binding`; `out_bytes`, room for `capacity` bytes, or NULL with a capacity of 0 to ask for the number only;
 * `out_size_bytes`, the number of bytes.
 * Statuses: WRONG_STATE (no planner, or no plan yet), COUNT_MISMATCH (`capacity` is neither 0 nor enough), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_plan_export(gvmm_binding *binding,
                                     void *out_bytes,
                                     size_t capacity,
                                     size_t *out_size_bytes);

/**
 * Uses another rank's plan from the next begin on, instead of one of the binding's own. A slot whose buffer does not allow
 * here what the plan says is served otherwise.
 *
 * State: before, no step is begun. The next begin may answer RECORD_AGAIN; it answers OUT_OF_DEVICE_MEMORY where the
 * device's budget of shadows is too small for the plan, until there is room, another plan is imported, or
 * `gvmm_binding_replan` gives it up.
 * Parameters: `binding`; `bytes`, the `size_bytes` bytes that export gave.
 * Statuses: PLAN_MISMATCH (a plan of other slots; the last-error detail names the first that differs),
 * INVALID_ARGUMENT (the bytes are no whole plan, or were changed), UNKNOWN_VERSION (a newer library's), WRONG_STATE (no
 * planner, or a step is begun), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_plan_import(gvmm_binding *binding,
                                     const void *bytes,
                                     size_t size_bytes);

/**
 * Checks that the plan is the one that another rank has.
 *
 * State: as `gvmm_binding_plan_export`.
 * Parameters: `binding`; `digest`, the other's, from `gvmm_binding_plan_query`.
 * Statuses: PLAN_MISMATCH (another plan), WRONG_STATE (no planner, or no plan yet), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_plan_check(gvmm_binding *binding, uint64_t digest);

/**
 * Says what the planner knows: the plan's digest, what a step costs by it as predicted, what it did not foresee.
 *
 * State: makes the plan where the watched steps are over and it was not made yet.
 * Parameters: `binding`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION, BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_plan_query(gvmm_binding *binding,
                                    gvmm_plan_info *out_info);

/**
 * Says for each slot why it is served as it is: what that costs, and what the next best would.
 *
 * State: as `gvmm_binding_plan_export`.
 * Parameters: `binding`; `out_explanations`, `count` elements, one for each slot.
 * Statuses: WRONG_STATE (no planner, or no plan yet), COUNT_MISMATCH, BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_explain(gvmm_binding *binding,
                                 gvmm_explanation *out_explanations,
                                 size_t count);

/**
 * Watches the next steps and then makes a new plan. Until then the slots are served as they are.
 *
 * State: changes no address.
 * Parameters: `binding`.
 * Statuses: WRONG_STATE (no planner), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_replan(gvmm_binding *binding);

/* ---- Bindings: the slots of one command buffer. ---- */

/** What a binding does with a slot: the command buffer has the buffer's own address. */
#define GVMM_ACTION_BAKE 0

/** What a binding does with a slot: an address of ours, remapped when the buffer changes. */
#define GVMM_ACTION_MAP 1

/** What a binding does with a slot: a shadow, copied in at begin and back at end. */
#define GVMM_ACTION_COPY 2

/**
 * What a binding does with a slot: the caller changes the address in its command buffer, as
 * `gvmm_binding_patches` says.
 */
#define GVMM_ACTION_PATCH 3

/** How a binding is to work; all zero but `struct_size` is the default. */
typedef struct gvmm_binding_desc {
    /** `sizeof(gvmm_binding_desc)`. */
    size_t struct_size;
    /** Slots of at most so many bytes are copied, larger ones mapped; or `GVMM_THRESHOLD_...`. */
    uint64_t threshold_bytes;
    /** Free device memory in bytes for the automatic threshold, equal on all ranks of a job; 0: not used. */
    uint64_t free_bytes;
    /** Who may do what in mappings and shadows; may be NULL if the count is 0. */
    const gvmm_access *access;
    /** Number of elements; 0: the device itself, read and write. */
    size_t access_count;
    /** Distance of two elements in bytes. */
    size_t access_stride_bytes;
    /** How it plans, or NULL for the default. */
    const gvmm_plan_desc *plan;
} gvmm_binding_desc;

/**
 * What a binding is and has done. Counts of calls: "setup" is up to and including the begin that started
 * the first step; "total" is all.
 */
typedef struct gvmm_binding_info {
    /** `sizeof(gvmm_binding_info)`. */
    size_t struct_size;
    /** The generation of its addresses; 0 before the first begin. */
    uint64_t generation;
    /** Number of slots. */
    uint64_t slot_count;
    /** Slots with GVMM_ACTION_BAKE. */
    uint64_t baked_slots;
    /** Slots with GVMM_ACTION_MAP. */
    uint64_t mapped_slots;
    /** Slots with GVMM_ACTION_COPY. */
    uint64_t copied_slots;
    /** The threshold in force, in bytes, or GVMM_THRESHOLD_OFF. */
    uint64_t threshold_bytes;
    /** Bytes of shadows that it asked for. */
    uint64_t shadow_bytes;
    /** How often begin said RECORD_AGAIN, also for a generation that is no longer in force. */
    uint64_t record_again_count;
    /** Setup: ranges reserved. */
    uint64_t setup_reserve;
    /** Setup: ranges freed. */
    uint64_t setup_free;
    /** Setup: blocks created. */
    uint64_t setup_create;
    /** Setup: blocks released. */
    uint64_t setup_release;
    /** Setup: blocks mapped. */
    uint64_t setup_map;
    /** Setup: mappings unmapped. */
    uint64_t setup_unmap;
    /** Setup: set-access calls. */
    uint64_t setup_set_access;
    /** Setup: launches of copies. */
    uint64_t setup_copy_launches;
    /** Setup: timeline writes. */
    uint64_t setup_timeline_writes;
    /** Total: ranges reserved. */
    uint64_t total_reserve;
    /** Total: ranges freed. */
    uint64_t total_free;
    /** Total: blocks created. */
    uint64_t total_create;
    /** Total: blocks released. */
    uint64_t total_release;
    /** Total: blocks mapped. */
    uint64_t total_map;
    /** Total: mappings unmapped. */
    uint64_t total_unmap;
    /** Total: set-access calls. */
    uint64_t total_set_access;
    /** Total: launches of copies. */
    uint64_t total_copy_launches;
    /** Total: timeline writes. */
    uint64_t total_timeline_writes;
} gvmm_binding_info;

/**
 * Creates a binding for a command buffer's slots. Nothing is laid out before the first begin.
 *
 * State: after success the binding lives until `gvmm_binding_destroy`; it has no addresses yet.
 * Parameters: `device`; `desc`, or NULL for the default; `slots`, `count` elements `stride_bytes` apart, 0
 * allowed; `out_binding`, the handle.
 * Statuses: INVALID_SIZE (a slot of no bytes), INVALID_ARGUMENT (a direction, flag, memory space, access
 * mode, plan mode or number of watched steps), MISALIGNED (an alignment is no power of two, or a shadow address
 * does not have it, or a permanent one is to have more than a granule's), OUT_OF_RANGE and OVERLAP (shadow addresses), OUT_OF_DEVICE_MEMORY and
 * OUT_OF_ADDRESS_SPACE (permanent addresses), NO_DEVICE (in the access list), UNKNOWN_VERSION; the last-error detail names the slot.
 * Threads: thread-safe.
 */
gvmm_status gvmm_binding_create(gvmm_device *device,
                                const gvmm_binding_desc *desc,
                                const gvmm_slot *slots,
                                size_t count,
                                size_t stride_bytes,
                                gvmm_binding **out_binding);

/**
 * Gives the slots' addresses, to be recorded into the command buffer.
 *
 * State: changes none.
 * Parameters: `binding`; `out_addresses`, `count` addresses, one for each slot; `out_generation`, the
 * generation to give to the next begin.
 * Statuses: WRONG_STATE (nothing is laid out before the first begin), COUNT_MISMATCH, BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_addresses(gvmm_binding *binding,
                                   uint64_t *out_addresses,
                                   size_t count,
                                   uint64_t *out_generation);

/**
 * Says what the binding does with each slot.
 *
 * State: changes none.
 * Parameters: `binding`; `out_actions`, `count` `GVMM_ACTION_...`, one for each slot.
 * Statuses: WRONG_STATE (nothing is laid out before the first begin), COUNT_MISMATCH, BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_actions(gvmm_binding *binding, uint32_t *out_actions, size_t count);

/**
 * Says what a binding is and has done.
 *
 * State: changes none.
 * Parameters: `binding`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION, BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_query(gvmm_binding *binding, gvmm_binding_info *out_info);

/**
 * Unmaps what no step in flight uses, so that the blocks' memory can go back. The next begin maps again.
 * While the last step is still running, this takes up to 50 ms to see that, and unmaps nothing.
 *
 * State: the addresses stay.
 * Parameters: `binding`; `out_unmapped`, the number of slots unmapped.
 * Statuses: BUSY, STREAM_CAPTURING, those of the driver.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_drop_idle(gvmm_binding *binding,
                                   uint64_t *out_unmapped);

/**
 * Gives up a binding. Its addresses and shadows are freed once the last step that used them has passed.
 *
 * State: after success the handle is invalid. A step that is begun is aborted.
 * Parameters: `binding`.
 * Statuses: BUSY (another thread is inside it), STREAM_CAPTURING (the last step's stream is being
 * captured).
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_destroy(gvmm_binding *binding);

/* ---- Steps: begin and end. ---- */

/** What stands behind a slot in one step. */
typedef struct gvmm_buffer {
    /** Its address. */
    uint64_t address;
    /** Its size in bytes, at least the slot's. */
    uint64_t size_bytes;
    /**
     * Without a block: a number that changes with each allocation, 0 meaning "always changed". With a
     * block it is ignored.
     */
    uint64_t allocation_id;
    /** The block that starts at `address` and holds all of the buffer, or NULL. */
    gvmm_block *block;
} gvmm_buffer;

/** What a begin or an end did. */
typedef struct gvmm_step_report {
    /** `sizeof(gvmm_step_report)`. */
    size_t struct_size;
    /** The generation whose addresses are in force. */
    uint64_t generation;
    /** Slots whose buffer is another than in the step before. */
    uint64_t changed_slots;
    /** Slots remapped. */
    uint64_t remapped_slots;
    /** Slots copied. */
    uint64_t copied_slots;
    /** Bytes copied. */
    uint64_t copied_bytes;
    /** Launches of copies. */
    uint64_t copy_launches;
    /** Map calls to the driver. */
    uint64_t map_calls;
    /** Unmap calls to the driver. */
    uint64_t unmap_calls;
    /** Set-access calls to the driver. */
    uint64_t set_access_calls;
    /** Nanoseconds spent waiting on the host for the step before. */
    uint64_t wait_ns;
    /** Nanoseconds spent in driver calls. */
    uint64_t driver_ns;
    /** 1 where the host waited for the step before. */
    uint32_t waited;
    /** 0. */
    uint32_t reserved;
    /** Commands that must be patched before the launch; `gvmm_binding_patches` lists them. */
    uint64_t patched_commands;
    /** 1 where slots that the plan has stay move so often that `gvmm_binding_replan` may pay. */
    uint32_t replan_advised;
    /** 0. */
    uint32_t reserved_too;
} gvmm_step_report;

/**
 * Begins a step: puts this step's buffers behind the slots' addresses. Begin, the command buffer and end
 * run on one stream.
 *
 * If the buffers can be served at the addresses of `generation`, the step starts (SUCCESS): copies in are
 * enqueued, moved slots are remapped (only then may the host wait, for the step before). Otherwise the
 * answer is RECORD_AGAIN, a success: the slots are laid out anew, the generation is raised, no step starts
 * and nothing is enqueued; ask `gvmm_binding_addresses`, record the command buffer with those, and begin
 * again. (Without GVMM_CAPABILITY_ALIASING, new addresses may have nothing behind them until that begin.)
 *
 * State: before, no step is begun. After SUCCESS one is, until end or abort. A buffer must live until the
 * stream has passed end; then its block may be destroyed. The stream must live until the binding's next
 * begin on another stream, its destruction, or `gvmm_stream_forget`. After a failure the old addresses are
 * in force and no step is begun.
 * Parameters: `binding`; `stream`, a `gvmm_stream` or the vendor's own; `buffers`, one for each slot,
 * `count` elements `stride_bytes` apart; `generation`, the one whose addresses the caller recorded, 0
 * before the first; `out_report`, or NULL.
 * Statuses: RECORD_AGAIN; WRONG_STATE (a step is begun, or copies were recorded and no graph is named), BUSY
 * (another thread is in the binding), COUNT_MISMATCH, INVALID_SIZE (a buffer smaller than its slot), INVALID_HANDLE (a block),
 * INVALID_ARGUMENT (address 0 where one is needed, a block of another device, a generation that was never
 * given), MISALIGNED (a baked slot's buffer), ALIASED, OVERLAP (what is copied
 * out shares bytes with another buffer, or a shadow address does), INVALID_STREAM, STREAM_CAPTURING (something
 * must be enqueued, and the stream is being captured), DEVICE_FAULT (of the step before), the memory group,
 * RANGE_LOST, UNKNOWN_VERSION; the last-error detail names the slot.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_begin(gvmm_binding *binding,
                               void *stream,
                               const gvmm_buffer *buffers,
                               size_t count,
                               size_t stride_bytes,
                               uint64_t generation,
                               gvmm_step_report *out_report);

/**
 * Ends a step: enqueues the copies back, on the step's stream. Enqueues nothing where nothing is copied
 * back, or the command buffer does it (`gvmm_binding_record_copies`).
 *
 * State: before, a step is begun; after success none is. After a failure it still is: end or abort it.
 * Parameters: `binding`; `out_report`, or NULL.
 * Statuses: WRONG_STATE (no step is begun), BUSY, STREAM_CAPTURING (something must be copied back, and the
 * stream is being captured), UNKNOWN_VERSION, those of the driver.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_end(gvmm_binding *binding,
                             gvmm_step_report *out_report);

/**
 * Ends a step whose launch failed, without copying back.
 *
 * State: before, a step is begun; after success none is.
 * Parameters: `binding`.
 * Statuses: WRONG_STATE (no step is begun), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_abort(gvmm_binding *binding);

/* ---- Copies inside the caller's command buffer. ---- */

/** Copies of a step, as bits: those to the shadows, before the commands. */
#define GVMM_COPIES_IN 1

/** Copies of a step, as bits: those back from the shadows, after the commands. */
#define GVMM_COPIES_OUT 2

/**
 * Puts copies of a step into the command buffer: they become part of the graph that the stream is being
 * captured into, at this place in it. So record GVMM_COPIES_IN first, the commands, and GVMM_COPIES_OUT last
 * (or one of them; begin and end go on launching what is not recorded).
 *
 * Once the graph is named by `gvmm_binding_use_graph`, begin points its copies at the step's buffers, for the
 * launches between that begin and the next, and neither begin nor end launches them. A launch that has not run
 * yet keeps its buffers, so any number of steps may be in flight. A graph launched twice in a step copies the same
 * twice. Outside of a step it must not be launched: its copies are those of the step before.
 *
 * State: before, a begin has answered RECORD_AGAIN (the binding has addresses), and no step is begun. What is
 * recorded again replaces what was: a graph with the former copies must not be launched any more. After a
 * RECORD_AGAIN nothing is recorded and no graph is named: the graph with the old copies must not be launched any
 * more, like every command buffer with old addresses; record both into the new one. After a failure what was
 * recorded before counts, and what the capture holds of this call copies nothing.
 * Parameters: `binding`; `stream`, a `gvmm_stream` or the vendor's own, which is being captured; `generation`,
 * the one whose addresses the graph has; `ways`, GVMM_COPIES_IN, GVMM_COPIES_OUT or both.
 * Statuses: INVALID_ARGUMENT (`ways`), WRONG_STATE (the stream is not being captured, another generation is in
 * force, a step is begun), UNSUPPORTED (no GVMM_CAPABILITY_ROUTES, or the stream is of a context of the
 * program's own), INVALID_STREAM, BUSY, those of the driver.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_record_copies(gvmm_binding *binding,
                                       void *stream,
                                       uint64_t generation,
                                       uint32_t ways);

/**
 * Names the graph that has a binding's recorded copies and is launched in the steps to come.
 *
 * State: before, no step is begun. Until another is named, a new generation is in force or the binding is
 * destroyed, the graph must live: the `gvmm_graph`, or on CUDA the `CUgraphExec` and the `CUgraph` that it was
 * made of. One that was updated or instantiated anew must be named again, also under the same handle. With copies
 * recorded and no graph named, begin is refused.
 * Parameters: `binding`; `graph`, a `gvmm_graph` or on CUDA a `CUgraphExec`, made of the capture that the copies
 * were recorded in; NULL: none.
 * Statuses: WRONG_STATE (a step is begun, or nothing is laid out yet), INVALID_HANDLE (a `gvmm_graph` that is
 * stale or of another device, or on the host anything else), BUSY. That the graph lacks the copies shows at the
 * next begin, as INVALID_ARGUMENT.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_use_graph(gvmm_binding *binding,
                                   void *graph);

/* ---- Permanent addresses of slots. ---- */

/**
 * Gives the permanent address of a slot with GVMM_SLOT_PERMANENT, to tell a communicator of it before the first step.
 *
 * State: changes none. The address is the slot's in every generation, and is freed with the binding, once the last step
 * that used it has passed.
 * Parameters: `binding`; `slot`, the slot's index; `out_address`, its address.
 * Statuses: OUT_OF_RANGE (no such slot), WRONG_STATE (a slot without one), BUSY.
 * Threads: externally synchronized; a second thread in the same binding gets BUSY.
 */
gvmm_status gvmm_binding_permanent(gvmm_binding *binding,
                                   size_t slot,
                                   uint64_t *out_address);

/* ---- Peers: other devices that may use a device's memory. ---- */

/**
 * Says whether another device can be given access to this device's memory. The other direction is a question of its
 * own: ask it of the other device.
 *
 * State: changes none.
 * Parameters: `device`; `peer`, the other device's number; `out_reaches`, 1 or 0.
 * Statuses: NO_DEVICE (no such number).
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_peer_query(gvmm_device *device,
                                   uint32_t peer,
                                   uint32_t *out_reaches);

/**
 * Gives another device access to this device's allocations, segments and pools, those that live and those to come, but
 * for those whose access was or is given as a list. This direction only: for the other, call it for the other device.
 *
 * State: after success the peer may do what `mode` says; after a failure all is as before.
 * Parameters: `device`; `peer`, the other device's number; `mode`, `GVMM_ACCESS_...`, NONE to take it away.
 * Statuses: NO_DEVICE (no such number), INVALID_ARGUMENT (`mode`, or the device itself), UNSUPPORTED (the peer cannot
 * reach this device's memory, or it has no virtual memory), and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_peer_enable(gvmm_device *device,
                                    uint32_t peer,
                                    uint32_t mode);

/**
 * Sets who may use an allocation's memory. `gvmm_device_peer_enable` changes nothing about it from then on.
 *
 * State: after success the access is as listed; after a failure as before.
 * Parameters: `allocation`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
 * Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
 * memory, or plain device memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_allocation_set_access(gvmm_allocation *allocation,
                                       const gvmm_access *access,
                                       size_t count,
                                       size_t stride_bytes);

/* ---- Segments: long ranges of addresses that grow and shrink by chunks. ---- */

/** How to make a segment; all zero but `struct_size` is the default. */
typedef struct gvmm_segment_desc {
    /** `sizeof(gvmm_segment_desc)`. */
    size_t struct_size;
    /** Bytes of addresses, rounded up to chunks; 0: nine eighths of the device's memory. */
    uint64_t size_bytes;
    /** Bytes of a chunk, a multiple of the granularity; 0: what a pool takes for requests of more than 1 MiB. */
    uint64_t chunk_bytes;
    /** Who may use the memory; may be NULL if the count is 0. */
    const gvmm_access *access;
    /** Number of elements; 0: the device itself, read and write. */
    size_t access_count;
    /** Distance of two elements in bytes. */
    size_t access_stride_bytes;
} gvmm_segment_desc;

/** What a segment is. */
typedef struct gvmm_segment_info {
    /** `sizeof(gvmm_segment_info)`. */
    size_t struct_size;
    /** Its first address. */
    uint64_t address;
    /** Bytes of its addresses. */
    uint64_t size_bytes;
    /** Bytes of a chunk. */
    uint64_t chunk_bytes;
    /** Places for chunks. */
    uint64_t chunk_count;
    /** Places that have one. */
    uint64_t live_chunks;
} gvmm_segment_info;

/** A run of neighbouring live chunks. */
typedef struct gvmm_chunk_run {
    /** The number of its first chunk; chunk `i` starts `i` times `chunk_bytes` behind the segment's first address. */
    uint64_t first_chunk;
    /** How many chunks it has. */
    uint64_t chunk_count;
} gvmm_chunk_run;

/**
 * Makes a segment: addresses without memory.
 *
 * State: after success the segment lives until `gvmm_segment_destroy`.
 * Parameters: `device`; `desc`, or NULL for the default; `out_segment`, the handle; `out_address`, its first address.
 * Statuses: INVALID_SIZE (a chunk that is no multiple of the granularity, or 2^32 chunks and more), INVALID_ARGUMENT
 * (an access mode), NO_DEVICE (in the access list), UNKNOWN_VERSION, OUT_OF_ADDRESS_SPACE, UNSUPPORTED (no virtual
 * memory).
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_create(gvmm_device *device,
                                const gvmm_segment_desc *desc,
                                gvmm_segment **out_segment,
                                uint64_t *out_address);

/**
 * Says what a segment is.
 *
 * State: changes none.
 * Parameters: `segment`; `out_info`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_query(gvmm_segment *segment, gvmm_segment_info *out_info);

/**
 * Gives memory to every chunk that a range touches and that has none.
 *
 * State: after success the range, rounded outwards to chunks, is accessible; after a failure all is as before.
 * Parameters: `segment`; `address` and `size_bytes`, a range of its; the end of the segment is a valid end;
 * `out_address` and `out_size_bytes`, the range rounded outwards, or NULL.
 * Statuses: OUT_OF_RANGE, OUT_OF_DEVICE_MEMORY, OUT_OF_FILE_DESCRIPTORS, MAP_LIMIT, and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_map(gvmm_segment *segment,
                             uint64_t address,
                             uint64_t size_bytes,
                             uint64_t *out_address,
                             uint64_t *out_size_bytes);

/**
 * Takes memory from every chunk that a range covers whole, once streams have passed what is enqueued on them now.
 *
 * State: after success these chunks have none for the caller; after a failure all is as before.
 * Parameters: `segment`; `address` and `size_bytes`, a range of its, rounded inwards to chunks; `streams`,
 * `stream_count` streams that may still use it, each a `gvmm_stream` or the vendor's own; 0: nothing does, and the
 * memory goes at once; `out_bytes`, how many bytes of chunks went.
 * Statuses: OUT_OF_RANGE, INVALID_STREAM, STREAM_CAPTURING, and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_unmap(gvmm_segment *segment,
                               uint64_t address,
                               uint64_t size_bytes,
                               void *const *streams,
                               size_t stream_count,
                               uint64_t *out_bytes);

/**
 * Lists the runs of neighbouring live chunks, by address.
 *
 * State: changes none.
 * Parameters: `segment`; `out_runs`, room for `count` elements `stride_bytes` apart, filled as far as that goes; may be
 * NULL if the count is 0; `out_needed`, how many runs there are.
 * Statuses: UNKNOWN_VERSION (`stride_bytes`).
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_live_runs(gvmm_segment *segment,
                                   gvmm_chunk_run *out_runs,
                                   size_t count,
                                   size_t stride_bytes,
                                   size_t *out_needed);

/**
 * Sets who may use a segment's memory, also what lives already. `gvmm_device_peer_enable` changes nothing about it
 * from then on.
 *
 * State: after success the access is as listed, now and for all memory to come.
 * Parameters: `segment`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
 * Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
 * memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_set_access(gvmm_segment *segment,
                                    const gvmm_access *access,
                                    size_t count,
                                    size_t stride_bytes);

/**
 * Gives a segment's addresses back.
 *
 * State: before, no chunk is live; after success the handle is invalid, and the addresses are free once what was
 * unmapped there has gone.
 * Parameters: `segment`.
 * Statuses: IN_USE (a chunk is live; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_segment_destroy(gvmm_segment *segment);

/* ---- Pools: caching allocators. ---- */

/** Limit of a pool: all that there is. */
#define GVMM_POOL_NO_LIMIT UINT64_MAX

/** How to make a pool; all zero but `struct_size` is the default. */
typedef struct gvmm_pool_desc {
    /** `sizeof(gvmm_pool_desc)`. */
    size_t struct_size;
    /**
     * Bytes of a chunk for requests of up to 1 MiB, a multiple of the granularity and at least 1 MiB; 0:
     * `GVMM_POOL_SMALL_CHUNK`, else by the driver.
     */
    uint64_t small_chunk_bytes;
    /** The same for larger requests; 0: `GVMM_POOL_CHUNK`, else by the driver. */
    uint64_t large_chunk_bytes;
    /**
     * The most that the pool may hold of the device's memory, in bytes, or GVMM_POOL_NO_LIMIT; 0:
     * `GVMM_POOL_LIMIT`, else no limit.
     */
    uint64_t limit_bytes;
    /** Bytes of addresses that all segments together may take; 0: 64 TiB. */
    uint64_t address_limit_bytes;
    /** Bytes of one segment's addresses; 0: nine eighths of the device's memory. */
    uint64_t segment_bytes;
    /** Who may use the memory; may be NULL if the count is 0. */
    const gvmm_access *access;
    /** Number of elements; 0: the device itself, read and write. */
    size_t access_count;
    /** Distance of two elements in bytes. */
    size_t access_stride_bytes;
    /** How many events to keep for snapshots, for each stream; 0: none. */
    uint32_t history;
    /** 0. */
    uint32_t reserved;
} gvmm_pool_desc;

/** A block that the program holds. */
typedef struct gvmm_pool_block {
    /** `sizeof(gvmm_pool_block)`. */
    size_t struct_size;
    /** Where it starts. */
    uint64_t address;
    /** Its size in bytes, rounded up to 512. */
    uint64_t size_bytes;
    /** The stream that it was allocated for. */
    void *stream;
    /** The id of the private pool that it is of, first half; 0 and 0 for none. */
    uint64_t id_high;
    /** The id's second half. */
    uint64_t id_low;
} gvmm_pool_block;

/**
 * Makes a pool, without memory: that comes with the first allocations. On a device without virtual memory it caches plain
 * device memory by size; whole blocks go from stream to stream then, where chunks would, and no events are kept.
 *
 * State: after success the pool lives until `gvmm_pool_destroy`.
 * Parameters: `device`; `desc`, or NULL for the default; `out_pool`, the handle.
 * Statuses: INVALID_SIZE (a chunk or a segment that does not fit the device), INVALID_ARGUMENT (an access mode),
 * NO_DEVICE (in the access list), UNSUPPORTED (other devices in the list, and no virtual memory), UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_create(gvmm_device *device,
                             const gvmm_pool_desc *desc,
                             gvmm_pool **out_pool);

/**
 * Gives a pool's memory back once the streams that used it have passed what is enqueued on them now. Never waits for
 * them.
 *
 * State: before, every block has been freed and every private pool released; after success the handle is invalid.
 * A handle that was given for a pool of somebody else's only ends itself.
 * Parameters: `pool`.
 * Statuses: IN_USE (a block is in use, or a private pool has a user; nothing has changed).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_destroy(gvmm_pool *pool);

/**
 * Allocates memory for work on a stream, aligned to 512 bytes. What an earlier block of that stream left is used
 * again at once, since a stream runs in order. May call the pressure functions, and may wait for streams, though
 * never while one is captured.
 *
 * State: after success the block is the caller's until `gvmm_pool_free`.
 * Parameters: `pool`; `size_bytes`, above 0; `stream`, a `gvmm_stream` or the vendor's own; `out_address`, where the
 * block starts.
 * Statuses: INVALID_SIZE (0, or 2 TiB and more), INVALID_STREAM, OUT_OF_DEVICE_MEMORY (the message says how much was
 * asked, free and lent, and who holds what), OUT_OF_ADDRESS_SPACE (more than a segment has in a row, or too many
 * streams; the message says as much), OUT_OF_FILE_DESCRIPTORS, MAP_LIMIT, and those of the driver. Nothing has changed then, and it may be tried
 * again.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_alloc(gvmm_pool *pool,
                            uint64_t size_bytes,
                            void *stream,
                            uint64_t *out_address);

/**
 * Frees a block. Work that is enqueued on its own stream, and on streams that `gvmm_pool_record_stream` named for
 * it, may still use it. Never waits.
 *
 * State: after success the block is the pool's.
 * Parameters: `pool`; `address`, what `gvmm_pool_alloc` gave.
 * Statuses: INVALID_ARGUMENT (no block in use starts there: never allocated, freed already, or another pool's).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_free(gvmm_pool *pool,
                           uint64_t address);

/**
 * Frees a block that work on `stream` was the last to use, whatever stream it was allocated for.
 *
 * State: after success the block is the pool's; its own stream uses it again once `stream` has passed what is
 * enqueued there now.
 * Parameters: `pool`; `address`, what `gvmm_pool_alloc` gave; `stream`, a `gvmm_stream` or the vendor's own.
 * Statuses: INVALID_ARGUMENT (no block in use starts there), INVALID_STREAM.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_free_on(gvmm_pool *pool,
                              uint64_t address,
                              void *stream);

/**
 * Says that a stream uses a block, too: once the block is freed it is used again only after that stream has passed
 * what is enqueued there then.
 *
 * State: after success the stream is noted, once, until the block is freed.
 * Parameters: `pool`; `address`, any in a block in use; `stream`, a `gvmm_stream` or the vendor's own.
 * Statuses: INVALID_ARGUMENT (no block in use holds it), INVALID_STREAM.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_record_stream(gvmm_pool *pool,
                                    uint64_t address,
                                    void *stream);

/**
 * Says that a stream is about to be destroyed. Call it for each pool that allocated for the stream: a later stream
 * may have the same number, and work of this one may still run.
 *
 * State: after success what the stream has enqueued is remembered, its free memory goes to whoever needs it, and
 * its blocks in use stay until they are freed.
 * Parameters: `pool`; `stream`, a `gvmm_stream` or the vendor's own.
 * Statuses: INVALID_STREAM, STREAM_CAPTURING; the stream is still known then.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_forget_stream(gvmm_pool *pool,
                                    void *stream);

/**
 * Finds the block in use that holds an address.
 *
 * State: changes none.
 * Parameters: `pool`; `address`, any; `out_block`, whose `struct_size` is set.
 * Statuses: INVALID_ARGUMENT (no block in use holds it), UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_find(gvmm_pool *pool, uint64_t address, gvmm_pool_block *out_block);

/* ---- Limits of pools. ---- */

/** A function that a pool calls when an allocation of `size_bytes` cannot be satisfied. */
typedef void (*gvmm_pressure_function)(uint64_t size_bytes, void *user_data);

/**
 * Gives chunks in which nothing is in use back to the device. Waits for the streams that used them.
 *
 * State: after success nothing is cached but in chunks that blocks in use share, that are pinned, or that private
 * pools with users have.
 * Parameters: `pool`; `out_bytes`, how many bytes were given back.
 * Statuses: STREAM_CAPTURING (nothing is given back meanwhile).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_trim(gvmm_pool *pool,
                           uint64_t *out_bytes);

/**
 * Sets the most that a pool may hold of the device's memory. What it holds beyond is given back where nothing uses
 * it, as by `gvmm_pool_trim`.
 *
 * State: after success the limit holds for what is allocated from here on.
 * Parameters: `pool`; `limit_bytes`, above 0, or GVMM_POOL_NO_LIMIT.
 * Statuses: INVALID_SIZE (0), IN_USE (blocks in use take more; nothing has changed), STREAM_CAPTURING.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_set_limit(gvmm_pool *pool,
                                uint64_t limit_bytes);

/**
 * Sets the limit as a fraction of the device's memory.
 *
 * State: as `gvmm_pool_set_limit`.
 * Parameters: `pool`; `fraction`, above 0 and at most 1.
 * Statuses: INVALID_ARGUMENT (another number), INVALID_SIZE (less than a byte), IN_USE (blocks in use take more;
 * nothing has changed), UNSUPPORTED (the device's memory is unknown), STREAM_CAPTURING.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_set_fraction(gvmm_pool *pool,
                                   double fraction);

/**
 * Sets who may use a pool's memory, also what lives already: for peers, list them and the device itself.
 * `gvmm_device_peer_enable` changes nothing about it from then on.
 *
 * State: after success the access is as listed, now and for all memory to come; after a failure as before.
 * Parameters: `pool`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
 * Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
 * memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_set_access(gvmm_pool *pool,
                                 const gvmm_access *access,
                                 size_t count,
                                 size_t stride_bytes);

/**
 * Keeps chunks where they are: for memory that was registered elsewhere by its address.
 *
 * State: after success the chunks that the bytes touch are neither moved nor given back until they are unpinned as
 * often.
 * Parameters: `pool`; `address` and `size_bytes`, the bytes.
 * Statuses: INVALID_ARGUMENT (the address is not the pool's), OUT_OF_RANGE.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_pin(gvmm_pool *pool,
                          uint64_t address,
                          uint64_t size_bytes);

/**
 * Undoes one `gvmm_pool_pin` of the same bytes.
 *
 * State: before, they are pinned.
 * Parameters: `pool`; `address` and `size_bytes`, the bytes.
 * Statuses: INVALID_ARGUMENT (the address is not the pool's), OUT_OF_RANGE, WRONG_STATE (not pinned).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_unpin(gvmm_pool *pool,
                            uint64_t address,
                            uint64_t size_bytes);

/**
 * Adds a function to be called when an allocation cannot be satisfied, before it is tried a last time.
 *
 * State: after success the function is called, in the order of adding, until the pool is destroyed and calls under
 * way have ended.
 * Parameters: `pool`; `function`, called on the thread that allocates, with no lock held; it may free, and call
 * anything of this library but allocate from this pool or destroy it, and must not unwind; `user_data`, handed to
 * it, may be NULL.
 * Statuses: none of its own.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_on_pressure(gvmm_pool *pool,
                                  gvmm_pressure_function function,
                                  void *user_data);

/* ---- Private pools, for graphs. ---- */

/** A function that says whether allocations for a stream go to the private pool: not 0 for yes. */
typedef uint32_t (*gvmm_filter_function)(void *stream, void *user_data);

/**
 * Begins to allocate to a private pool, which is made where it does not exist: what a captured graph uses must not
 * move, and its free blocks must not be given to others, as each replay writes into them.
 *
 * State: before, nothing is being allocated to this private pool. After success allocations for streams that
 * `filter` takes go there, it has one user more, and until `gvmm_pool_capture_end` nothing of the whole pool is
 * unmapped, lent or waited for.
 * Parameters: `pool`; `id_high` and `id_low`, the private pool's id, not 0 and 0; `filter`, or NULL to take every
 * stream; it is called on the threads that allocate, with no lock held, must not allocate and must not unwind;
 * `user_data`, handed to it, may be NULL. Both must last until `gvmm_pool_capture_end` has returned and calls under
 * way have ended.
 * Statuses: INVALID_ARGUMENT (the id 0 and 0), WRONG_STATE (it is being allocated to already).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_capture_begin(gvmm_pool *pool,
                                    uint64_t id_high,
                                    uint64_t id_low,
                                    gvmm_filter_function filter,
                                    void *user_data);

/**
 * Ends what `gvmm_pool_capture_begin` began. The private pool stays for its users.
 *
 * State: after success allocations go where they went before.
 * Parameters: `pool`; `id_high` and `id_low`, the private pool's id.
 * Statuses: WRONG_STATE (nothing was begun for it).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_capture_end(gvmm_pool *pool, uint64_t id_high, uint64_t id_low);

/**
 * Says that a private pool has one user (a graph) less; each `gvmm_pool_capture_begin` made one.
 *
 * State: after the last user its free memory is lent and given back like all other; its blocks in use stay until
 * they are freed.
 * Parameters: `pool`; `id_high` and `id_low`, the private pool's id.
 * Statuses: INVALID_ARGUMENT (no such private pool, or it was released), WRONG_STATE (the last user of one that is
 * being allocated to).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_capture_release(gvmm_pool *pool,
                                      uint64_t id_high,
                                      uint64_t id_low);

/* ---- Figures of pools. ---- */

/** A figure. */
typedef struct gvmm_figure {
    /** Now. */
    uint64_t current;
    /** The most since the pool was made, or since `gvmm_pool_reset_peaks`. */
    uint64_t peak;
    /** All that was ever added; what was taken away is this less `current`. */
    uint64_t total;
} gvmm_figure;

/** Memory in its states. Fixed: later versions do not append to it. */
typedef struct gvmm_pool_bytes {
    /** Bytes in blocks that the program holds, each rounded up to 512. */
    gvmm_figure allocated_bytes;
    /** What the program asked for in them. */
    gvmm_figure requested_bytes;
    /** Allocated, or freed while another stream still uses it. */
    gvmm_figure active_bytes;
    /** Device memory held, used or not. */
    gvmm_figure reserved_bytes;
    /** Blocks that the program holds; `total` counts the allocations, and less `current` the frees. */
    gvmm_figure blocks;
    /** The same with blocks that were freed while another stream still uses them. */
    gvmm_figure active_blocks;
    /** Chunks mapped; `total` counts those that moved here, too. */
    gvmm_figure chunks;
} gvmm_pool_bytes;

/**
 * What a pool has. With several streams, peaks of what they hold together, reserved and addresses apart, may be too low
 * by up to 1 MiB (64 MiB for a stream that allocates and frees large blocks by turns) and a 64th of each stream's share;
 * those of `small` and `large` are the highest of one stream, or what is now.
 */
typedef struct gvmm_pool_stats {
    /** `sizeof(gvmm_pool_stats)`. */
    size_t struct_size;
    /** All of it. */
    gvmm_pool_bytes all;
    /** Of it, what serves requests of up to 1 MiB. */
    gvmm_pool_bytes small;
    /** Of it, what serves larger ones. */
    gvmm_pool_bytes large;
    /** Bytes of addresses reserved. */
    gvmm_figure address_space;
    /** Bytes of chunks that lie ready and belong to no stream; part of `all.reserved_bytes`. */
    uint64_t spare_bytes;
    /** The most that the pool may reserve, or GVMM_POOL_NO_LIMIT. */
    uint64_t limit_bytes;
    /** Chunks that moved to where they were needed. */
    uint64_t lent_chunks;
    /** Times that a stream was made to wait for another so that memory could be used again. */
    uint64_t stream_waits;
    /** Times that the host waited for streams. */
    uint64_t host_waits;
    /** Times that the host waited for a whole device: 0, it never does. */
    uint64_t device_syncs;
    /** Trims that were made to satisfy an allocation. */
    uint64_t forced_trims;
    /** Allocations that failed for lack of memory. */
    uint64_t out_of_memory;
    /** Driver calls made for allocations, frees and trims: ranges reserved. */
    uint64_t reserve_calls;
    /** Ranges freed. */
    uint64_t free_calls;
    /** Blocks created. */
    uint64_t create_calls;
    /** Blocks released. */
    uint64_t release_calls;
    /** Blocks mapped. */
    uint64_t map_calls;
    /** Mappings unmapped; those that follow later, once streams have passed, `gvmm_device_counters` counts. */
    uint64_t unmap_calls;
    /** Set-access calls. */
    uint64_t set_access_calls;
    /** Writes of a timeline enqueued on a stream. */
    uint64_t timeline_writes;
    /** Their time in nanoseconds, waits not included. */
    uint64_t driver_ns;
} gvmm_pool_stats;

/** What one stream has, of the pool or of a private pool. An element of an array. */
typedef struct gvmm_pool_stream {
    /** The stream; NULL, too, once it was forgotten (see `has_ended`). */
    void *stream;
    /** The private pool's id, first half; 0 and 0 for none. */
    uint64_t id_high;
    /** The id's second half. */
    uint64_t id_low;
    /** 1 once the stream was forgotten or destroyed. */
    uint32_t has_ended;
    /** 0. */
    uint32_t reserved;
    /** Bytes of addresses reserved. */
    uint64_t address_space_bytes;
    /** Chunks that moved away from it. */
    uint64_t lent_chunks;
    /** Chunks that moved to it. */
    uint64_t borrowed_chunks;
    /** All of it. */
    gvmm_pool_bytes all;
    /** Of it, what serves requests of up to 1 MiB. */
    gvmm_pool_bytes small;
    /** Of it, what serves larger ones. */
    gvmm_pool_bytes large;
} gvmm_pool_stream;

/**
 * Says what a pool has.
 *
 * State: changes none.
 * Parameters: `pool`; `out_stats`, whose `struct_size` is set.
 * Statuses: UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_query(gvmm_pool *pool, gvmm_pool_stats *out_stats);

/**
 * Says what each stream of a pool has.
 *
 * State: changes none.
 * Parameters: `pool`; `out_streams`, room for `count` elements `stride_bytes` apart, filled as far as that goes; may
 * be NULL if the count is 0; `out_needed`, how many there are.
 * Statuses: UNKNOWN_VERSION (`stride_bytes`).
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_stream_stats(gvmm_pool *pool,
                                   gvmm_pool_stream *out_streams,
                                   size_t count,
                                   size_t stride_bytes,
                                   size_t *out_needed);

/**
 * Starts all peaks of a pool again from what is now.
 *
 * State: after success each `peak` is its `current`.
 * Parameters: `pool`.
 * Statuses: none of its own.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_reset_peaks(gvmm_pool *pool);

/* ---- Snapshots of pools. ---- */

/**
 * Copies out a picture of a pool as JSON: `{"device": 0, "segments": [...], "events": [...]}`. A segment, a run of live
 * chunks, has `address`, `size`, `stream` (a number; null once it was forgotten), `pool` (two numbers), `large`, and
 * `blocks`, by address, each with `address`, `size`, `requested_size` and `state` (`active_allocated`,
 * `active_pending_free` or `inactive`, as PyTorch's memory viewer has them). An event, oldest first, has `number`,
 * `action` (`alloc`, `free_requested`, `free_completed`, `segment_map`, `segment_unmap` or `oom`), `address`, `size`,
 * `stream` and `pool`; there are as many as the pool was made to keep.
 *
 * State: changes none.
 * Parameters: `pool`; `out_json`, room for `capacity` bytes; a longer text is cut; it ends with a NUL unless `capacity`
 * is 0, and then it may be NULL; `out_needed`, the bytes that the whole text needs now, with the NUL.
 * Statuses: none of its own.
 * Threads: thread-safe.
 */
gvmm_status gvmm_pool_snapshot(gvmm_pool *pool,
                               char *out_json,
                               size_t capacity,
                               size_t *out_needed);

/* ---- The fault switch. ---- */

/** Any call of the driver. */
#define GVMM_CALL_ANY 0

/** Driver call: reserve a range. */
#define GVMM_CALL_RESERVE 1

/** Driver call: free a range. */
#define GVMM_CALL_FREE 2

/** Driver call: create a block. */
#define GVMM_CALL_CREATE 3

/** Driver call: release a block. */
#define GVMM_CALL_RELEASE 4

/** Driver call: map. */
#define GVMM_CALL_MAP 5

/** Driver call: unmap. */
#define GVMM_CALL_UNMAP 6

/** Driver call: set access. */
#define GVMM_CALL_SET_ACCESS 7

/** Driver call: allocate plain memory. */
#define GVMM_CALL_ALLOCATE 8

/** Driver call: give plain memory back. */
#define GVMM_CALL_DEALLOCATE 9

/** Driver call: copy. */
#define GVMM_CALL_COPY 10

/** Driver call: make a timeline. */
#define GVMM_CALL_TIMELINE_CREATE 11

/** Driver call: give a timeline up. */
#define GVMM_CALL_TIMELINE_DESTROY 12

/** Driver call: enqueue a write of a timeline. */
#define GVMM_CALL_TIMELINE_WRITE 13

/** Driver call: read a timeline. */
#define GVMM_CALL_TIMELINE_READ 14

/** Driver call: wait for a timeline on the host. */
#define GVMM_CALL_TIMELINE_WAIT 15

/** Driver call: let a stream wait for a timeline. */
#define GVMM_CALL_STREAM_WAIT 16

/** Driver call: ask whether a stream captures. */
#define GVMM_CALL_IS_CAPTURING 17

/** Driver call: export a block. */
#define GVMM_CALL_EXPORT 18

/** Driver call: import a block. */
#define GVMM_CALL_IMPORT 19

/** Driver call: read the memory figures. */
#define GVMM_CALL_MEMORY 20

/** Driver call: keep what stays of a binding's copies. */
#define GVMM_CALL_ROUTE_CREATE 21

/** Driver call: give that up. */
#define GVMM_CALL_ROUTE_DESTROY 22

/** Driver call: record copies into a graph. */
#define GVMM_CALL_ROUTE_RECORD 23

/** Driver call: point a graph's recorded copies at buffers. */
#define GVMM_CALL_ROUTE_POINT 24

/**
 * For tests: makes driver calls fail, without making them. It holds for all devices of the device's driver
 * and replaces what was set before.
 *
 * State: after success the `nth` such call from now on fails, and the `count - 1` after it.
 * Parameters: `device`; `call`, `GVMM_CALL_...`; `nth`, 1 being the next; `count`, how many fail in a row,
 * 0: none, the switch is off; `status`, a `GVMM_ERROR_...` that they fail with.
 * Statuses: INVALID_ARGUMENT (`call`, `status`, or `nth` 0 while `count` is not).
 * Threads: thread-safe.
 */
gvmm_status gvmm_device_fail_calls(gvmm_device *device,
                                   uint32_t call,
                                   uint64_t nth,
                                   uint64_t count,
                                   gvmm_status status);

/* ---- PyTorch's pluggable allocator, CUDA and ROCm: functions of the exact types that it calls. ---- */

/** The number of a pool for graphs: PyTorch's `std::pair` of two numbers, passed by value. */
typedef struct gvmm_torch_pool_id {
    /** Its first half. */
    uint64_t first;
    /** Its second half. */
    uint64_t second;
} gvmm_torch_pool_id;

/**
 * PyTorch's allocation: memory of a device for work on a stream. The device's pool is made at the first call for it, over
 * the driver that GVMM_DRIVER names, else HIP's where the process has HIP's library, else CUDA's.
 *
 * State: after success the block lives until `gvmm_torch_free`. The caller's current context is as before, and no other
 * device is touched.
 * Parameters: `size_bytes`; `device`, PyTorch's number; `stream`, of this device.
 * Returns: the block, or NULL for 0 bytes, and NULL where it failed: then `gvmm_last_error_message` says why, and for lack
 * of memory how much was asked, free, lent, and held by whom.
 * Threads: thread-safe.
 */
void *gvmm_torch_alloc(size_t size_bytes,
                       int device,
                       void *stream);

/**
 * PyTorch's free: gives a block back. An address at which no block in use starts is logged, the first as a warning, and
 * left alone; so is everything in a child made by fork.
 *
 * State: after it the block is used again for its stream at once, for others once that stream and those of
 * `gvmm_torch_record_stream` have passed what is enqueued on them now.
 * Parameters: `address`, or NULL; `size_bytes`, which is not looked at; `device`, PyTorch's number; `stream`, the last that
 * uses the block.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_free(void *address,
                     size_t size_bytes,
                     int device,
                     void *stream);

/**
 * Gives a block back by its address alone (PyTorch's `raw_delete`), after the last use on its own stream. Else as
 * `gvmm_torch_free`.
 *
 * State: as after `gvmm_torch_free` with the block's own stream.
 * Parameters: `address`, or NULL.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_delete(void *address);

/**
 * PyTorch's first word to its current allocator. Nothing is made yet: pools come with the first allocation.
 *
 * State: changes none.
 * Parameters: `device_count`, which is not looked at.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_init(int device_count);

/**
 * PyTorch's `empty_cache`: gives back the memory that nothing uses, of all devices.
 *
 * State: waits for the streams that used it; nothing is given back while a stream is captured.
 * Parameters: none.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_reset(void);

/**
 * PyTorch's `set_per_process_memory_fraction`. A device without a pool keeps it in mind.
 *
 * State: after a failure (`gvmm_last_error_message`) the limit is as before.
 * Parameters: `fraction` of the device's memory, above 0 and at most 1, and no less than blocks in use take; `device`,
 * PyTorch's number.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_memory_fraction(double fraction,
                                int device);

/**
 * The block that an address lies in.
 *
 * State: changes none.
 * Parameters: `address`, in a block in use; `out_size_bytes`, its size, or NULL.
 * Returns: where the block starts, or NULL where there is none.
 * Threads: thread-safe.
 */
void *gvmm_torch_base_alloc(void *address, size_t *out_size_bytes);

/**
 * Says that a stream uses a block, too (PyTorch's `record_stream`). An address in no block is logged and left alone.
 *
 * State: once the block is freed, it is used again only after this stream has passed what is enqueued on it then.
 * Parameters: `address`, in a block in use; `stream`, of the same device.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_record_stream(void *address,
                              void *stream);

/**
 * From here on, a device's allocations for the streams that a filter takes go to a pool of their own, for a graph that is
 * being captured. Until the end, nothing of the device's pools is unmapped, lent or waited for.
 *
 * State: the pool is made where it does not exist, and has one user more. After a failure nothing has changed.
 * Parameters: `device`, PyTorch's number; `id`, the pool's; `filter`, a `const std::function<bool(stream)> *` of libstdc++
 * that is read during the call and copied.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_begin_allocate_to_pool(int device,
                                       gvmm_torch_pool_id id,
                                       const void *filter);

/**
 * Ends what `gvmm_torch_begin_allocate_to_pool` began. The pool stays for its users.
 *
 * State: after a failure nothing has changed.
 * Parameters: `device`, PyTorch's number; `id`, the pool's.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_end_allocate_to_pool(int device, gvmm_torch_pool_id id);

/**
 * A pool for graphs has one user less; without any, its free memory is used for everything.
 *
 * State: after a failure nothing has changed.
 * Parameters: `device`, PyTorch's number; `id`, the pool's.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_torch_release_pool(int device, gvmm_torch_pool_id id);

/**
 * A handle on the pool that PyTorch's allocations of a device come from: for statistics, limits and snapshots.
 *
 * State: after success the handle lives until `gvmm_pool_destroy`, which gives up the handle only.
 * Parameters: `device`, PyTorch's number; `out_pool`, the handle.
 * Statuses: NO_DEVICE, WRONG_STATE (nothing was allocated there yet, so that there is no pool).
 * Threads: thread-safe.
 */
gvmm_status gvmm_torch_pool(int device,
                            gvmm_pool **out_pool);

/* ---- PyTorch's pluggable allocator for Intel GPUs (`torch.xpu`): functions of the exact types that it calls. ---- */

/**
 * PyTorch's allocation on an Intel GPU: memory of the queue's device, in its context, for work on it. The device's pool is
 * made at the first call for it. Where the driver does not know the type of mapped memory, so that libraries would refuse it,
 * the pool is of plain allocations.
 *
 * State: after success the block lives until `gvmm_xpu_free`. The context is kept from the first call on.
 * Parameters: `size_bytes`; `device`, PyTorch's number; `queue`, a `sycl::queue *` of Level Zero, in order, which lives as long
 * as blocks of it are in use. Unless GVMM_XPU_STREAMS is `any`, all calls for a device are for one.
 * Returns: the block, or NULL for 0 bytes, and NULL where it failed: then `gvmm_last_error_message` says why, and for lack
 * of memory how much was asked, free, lent, and held by whom.
 * Threads: thread-safe. Nobody else may enqueue on the same queue meanwhile.
 */
void *gvmm_xpu_alloc(size_t size_bytes,
                     int device,
                     void *queue);

/**
 * PyTorch's free on an Intel GPU. An address at which no block in use starts is logged, the first as a warning, and left
 * alone; so is a block whose queue is a second one where one is declared, and everything in a child made by fork.
 *
 * State: after it the block is used again for its queue at once, for others once that queue and those of
 * `gvmm_xpu_record_stream` have passed what is enqueued on them now.
 * Parameters: `address`, or NULL; `size_bytes`, which is not looked at; `device`, PyTorch's number; `queue`, the last that
 * uses the block, or NULL for the one that it was allocated for.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_xpu_free(void *address,
                   size_t size_bytes,
                   int device,
                   void *queue);

/**
 * Says that a queue uses a block, too (PyTorch's `record_stream`). An address in no block is logged and left alone.
 *
 * State: once the block is freed, it is used again only after this queue has passed what is enqueued on it then.
 * Parameters: `address`, in a block in use; `queue`, a `sycl::queue *` of the same device, which lives as long.
 * Returns: nothing.
 * Threads: thread-safe.
 */
void gvmm_xpu_record_stream(void *address,
                            void *queue);

/**
 * A handle on the pool that PyTorch's allocations of an Intel GPU come from: for statistics, limits and snapshots.
 *
 * State: after success the handle lives until `gvmm_pool_destroy`, which gives up the handle only.
 * Parameters: `device`, PyTorch's number; `out_pool`, the handle.
 * Statuses: NO_DEVICE, WRONG_STATE (nothing was allocated there yet, so that there is no pool).
 * Threads: thread-safe.
 */
gvmm_status gvmm_xpu_pool(int device,
                          gvmm_pool **out_pool);

/* ---- Options of the process. ---- */

/** A switch of `gvmm_options`: as its variable says. */
#define GVMM_SWITCH_DEFAULT 0

/** A switch of `gvmm_options`: on. */
#define GVMM_SWITCH_ON 1

/** A switch of `gvmm_options`: off. */
#define GVMM_SWITCH_OFF 2

/**
 * What the environment says too; a field that is 0 or NULL leaves it to its variable, which the README explains.
 * Texts have the form of the variable's.
 */
typedef struct gvmm_options {
    /** `sizeof(gvmm_options)`. */
    size_t struct_size;
    /** What GVMM_DRIVER_AUTO is, a `GVMM_DRIVER_...` (`GVMM_DRIVER`). */
    uint32_t driver;
    /** How bindings that ask for nothing decide, a `GVMM_PLAN_...` (`GVMM_PLAN`). */
    uint32_t plan;
    /** What is logged to standard error, such as `warn` (`GVMM_LOG`). */
    const char *log;
    /** Path of the file with the device's costs (`GVMM_PROFILE`). */
    const char *profile;
    /** Threshold of bindings that ask for the default: bytes or `GVMM_THRESHOLD_...` (`XLA_VMM_TMP_COPY_THRESHOLD`). */
    uint64_t threshold_bytes;
    /** Shadows of all bindings of a device, in bytes (`GVMM_SHADOW_BUDGET`). */
    uint64_t shadow_budget_bytes;
    /** A pool's chunks, in bytes (`GVMM_POOL_CHUNK`). */
    uint64_t pool_chunk_bytes;
    /** A pool's chunks for small requests, in bytes (`GVMM_POOL_SMALL_CHUNK`). */
    uint64_t pool_small_chunk_bytes;
    /** The most that a pool reserves, in bytes (`GVMM_POOL_LIMIT`). */
    uint64_t pool_limit_bytes;
    /** Path of NVIDIA's driver library (`GVMM_CUDA_LIBRARY`). */
    const char *cuda_library;
    /** Path of AMD's HIP library (`GVMM_HIP_LIBRARY`). */
    const char *hip_library;
    /** Path of the Level Zero loader (`GVMM_ZE_LIBRARY`). */
    const char *level_zero_library;
    /** Care for driver faults, as `+name,-name` (`GVMM_QUIRKS`). */
    const char *quirks;
    /** How many devices the host driver has (`GVMM_HOST_DEVICES`). */
    uint32_t host_devices;
    /** Whether the host driver's blocks have huge pages, a `GVMM_SWITCH_...` (`GVMM_HOST_HUGEPAGES`). */
    uint32_t host_huge_pages;
    /** Memory of each host device, in bytes (`GVMM_HOST_MEMORY`). */
    uint64_t host_memory_bytes;
    /** How many mappings the host driver may hold (`GVMM_HOST_MAX_MAPS`). */
    uint64_t host_max_maps;
    /** Capabilities that the host driver shall lack, as `-aliasing` (`GVMM_HOST_CAPS`). */
    const char *host_capabilities;
    /** Simulated costs of the host driver, such as `h200` (`GVMM_HOST_COSTS`). */
    const char *host_costs;
    /** Which devices may use a framework's pools on others, such as `all` or `0,1` (`GVMM_POOL_PEERS`). */
    const char *pool_peers;
    /** How many events a pool keeps for snapshots, for each stream (`GVMM_POOL_HISTORY`). */
    uint64_t pool_history;
    /** Whether PyTorch allocates for `one` stream of an Intel GPU or `any` (`GVMM_XPU_STREAMS`). */
    const char *xpu_streams;
} gvmm_options;

/**
 * Sets options of the process in the place of environment variables, for a program that is embedded where it cannot
 * set those. Each that is set wins over its variable.
 *
 * State: before, no driver has been opened (by `gvmm_device_open`, `gvmm_device_attach` or `gvmm_device_count`) and no
 * options were set; after success they hold for the life of the process. After a failure nothing is set.
 * Parameters: `options`; texts are copied.
 * Statuses: WRONG_STATE (too late, or a second time), INVALID_ARGUMENT (a value that its variable cannot have, as the
 * log says, or no UTF-8), UNKNOWN_VERSION.
 * Threads: thread-safe.
 */
gvmm_status gvmm_configure(const gvmm_options *options);

/* ---- All functions as one table. ---- */

/**
 * Every function of this header but `gvmm_get_api` itself, as a table for programs that load the library while they
 * run, if it is there. It is one constant; functions are only ever appended. It begins with `struct_size`, its own size
 * in bytes, and `version`, the library's as `gvmm_version_number` gives it; `reserved` is 0. A function is there if the
 * table is long enough.
 */
typedef struct gvmm_api {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    uint32_t (*version_number)(void);
    const char *(*version_string)(void);
    const char *(*status_name)(gvmm_status status);
    gvmm_status (*last_error_message)(char *out_message, size_t capacity, size_t *out_needed);
    gvmm_status (*last_error_detail)(gvmm_error_detail *out_detail);
    gvmm_status (*log_set_callback)(gvmm_log_callback callback, void *user_data,
        uint32_t max_level);
    gvmm_status (*device_count)(uint32_t driver, uint32_t *out_count);
    gvmm_status (*device_open)(const gvmm_device_desc *desc, gvmm_device **out_device);
    gvmm_status (*device_close)(gvmm_device *device);
    gvmm_status (*device_query)(gvmm_device *device, gvmm_device_info *out_info);
    gvmm_status (*device_memory)(gvmm_device *device, uint64_t *out_free_bytes,
        uint64_t *out_total_bytes);
    gvmm_status (*device_counters)(gvmm_device *device, gvmm_call_counts *out_counts);
    gvmm_status (*device_collect)(gvmm_device *device, uint64_t *out_collected);
    gvmm_status (*device_drain)(gvmm_device *device);
    gvmm_status (*device_find)(gvmm_device *device, uint64_t address, gvmm_block **out_block,
        uint64_t *out_offset_bytes);
    gvmm_status (*stream_create)(gvmm_device *device, gvmm_stream **out_stream);
    gvmm_status (*stream_destroy)(gvmm_stream *stream);
    gvmm_status (*stream_synchronize)(gvmm_stream *stream);
    gvmm_status (*stream_host_function)(gvmm_stream *stream, gvmm_host_function function,
        void *user_data);
    gvmm_status (*stream_capture_begin)(gvmm_stream *stream);
    gvmm_status (*stream_capture_end)(gvmm_stream *stream, gvmm_graph **out_graph);
    gvmm_status (*stream_is_capturing)(gvmm_device *device, void *stream, uint32_t *out_capturing);
    gvmm_status (*stream_forget)(gvmm_device *device, void *stream);
    gvmm_status (*graph_launch)(gvmm_graph *graph, gvmm_stream *stream);
    gvmm_status (*graph_destroy)(gvmm_graph *graph);
    gvmm_status (*device_attach)(const gvmm_attach_desc *desc, gvmm_device **out_device);
    gvmm_status (*stream_wrap_queue)(gvmm_device *device, uint64_t native_queue,
        uint32_t queue_group, gvmm_stream **out_stream);
    gvmm_status (*block_create)(gvmm_device *device, uint64_t size_bytes, uint32_t flags,
        gvmm_block **out_block);
    gvmm_status (*block_adopt)(gvmm_device *device, uint64_t native_handle, uint64_t size_bytes,
        uint32_t flags, gvmm_block **out_block);
    gvmm_status (*block_query)(gvmm_block *block, gvmm_block_info *out_info);
    gvmm_status (*block_destroy)(gvmm_block *block);
    gvmm_status (*block_export)(gvmm_block *block, int *out_fd);
    gvmm_status (*block_import)(gvmm_device *device, int fd, uint64_t size_bytes,
        gvmm_block **out_block);
    gvmm_status (*reserve)(gvmm_device *device, uint64_t size_bytes, const gvmm_reserve_desc *desc,
        gvmm_reservation **out_reservation, uint64_t *out_address);
    gvmm_status (*map)(gvmm_reservation *reservation, uint64_t offset_bytes, gvmm_block *block);
    gvmm_status (*reservation_unmap)(gvmm_reservation *reservation, uint64_t offset_bytes,
        uint64_t size_bytes);
    gvmm_status (*reservation_set_access)(gvmm_reservation *reservation, uint64_t offset_bytes,
        uint64_t size_bytes, const gvmm_access *access, size_t count, size_t stride_bytes);
    gvmm_status (*reservation_query)(gvmm_reservation *reservation,
        gvmm_reservation_info *out_info);
    gvmm_status (*reservation_destroy)(gvmm_reservation *reservation);
    gvmm_status (*remap)(gvmm_device *device, const gvmm_remap_entry *entries, size_t count,
        size_t stride_bytes, void *const *streams, size_t stream_count,
        gvmm_remap_report *out_report);
    gvmm_status (*device_retire)(gvmm_device *device, const gvmm_remap_entry *entries,
        size_t count, size_t stride_bytes, void *const *streams, size_t stream_count);
    gvmm_status (*allocation_create)(gvmm_device *device, uint64_t size_bytes,
        gvmm_allocation **out_allocation, uint64_t *out_address);
    gvmm_status (*allocation_query)(gvmm_allocation *allocation, gvmm_allocation_info *out_info);
    gvmm_status (*allocation_destroy)(gvmm_allocation *allocation);
    gvmm_status (*shadow_copy)(gvmm_device *device, void *stream, const gvmm_copy_slice *slices,
        size_t count, size_t stride_bytes, uint32_t *out_launches);
    gvmm_status (*compute_threshold)(const uint64_t *size_bytes, size_t count,
        uint64_t bandwidth_bytes_per_s, uint64_t free_bytes, uint64_t total_bytes,
        uint64_t *out_threshold_bytes);
    gvmm_status (*binding_patches)(gvmm_binding *binding, gvmm_patch *out_patches, size_t capacity,
        size_t *out_count);
    gvmm_status (*binding_plan_export)(gvmm_binding *binding, void *out_bytes, size_t capacity,
        size_t *out_size_bytes);
    gvmm_status (*binding_plan_import)(gvmm_binding *binding, const void *bytes, size_t size_bytes);
    gvmm_status (*binding_plan_check)(gvmm_binding *binding, uint64_t digest);
    gvmm_status (*binding_plan_query)(gvmm_binding *binding, gvmm_plan_info *out_info);
    gvmm_status (*binding_explain)(gvmm_binding *binding, gvmm_explanation *out_explanations,
        size_t count);
    gvmm_status (*binding_replan)(gvmm_binding *binding);
    gvmm_status (*binding_create)(gvmm_device *device, const gvmm_binding_desc *desc,
        const gvmm_slot *slots, size_t count, size_t stride_bytes, gvmm_binding **out_binding);
    gvmm_status (*binding_addresses)(gvmm_binding *binding, uint64_t *out_addresses, size_t count,
        uint64_t *out_generation);
    gvmm_status (*binding_actions)(gvmm_binding *binding, uint32_t *out_actions, size_t count);
    gvmm_status (*binding_query)(gvmm_binding *binding, gvmm_binding_info *out_info);
    gvmm_status (*binding_drop_idle)(gvmm_binding *binding, uint64_t *out_unmapped);
    gvmm_status (*binding_destroy)(gvmm_binding *binding);
    gvmm_status (*binding_begin)(gvmm_binding *binding, void *stream, const gvmm_buffer *buffers,
        size_t count, size_t stride_bytes, uint64_t generation, gvmm_step_report *out_report);
    gvmm_status (*binding_end)(gvmm_binding *binding, gvmm_step_report *out_report);
    gvmm_status (*binding_abort)(gvmm_binding *binding);
    gvmm_status (*binding_record_copies)(gvmm_binding *binding, void *stream, uint64_t generation,
        uint32_t ways);
    gvmm_status (*binding_use_graph)(gvmm_binding *binding, void *graph);
    gvmm_status (*device_fail_calls)(gvmm_device *device, uint32_t call, uint64_t nth,
        uint64_t count, gvmm_status status);
    gvmm_status (*timeline_create)(gvmm_device *device, gvmm_timeline **out_timeline,
        const uint64_t **out_value);
    gvmm_status (*timeline_write)(gvmm_timeline *timeline, void *stream, uint64_t value);
    gvmm_status (*timeline_destroy)(gvmm_timeline *timeline);
    gvmm_status (*configure)(const gvmm_options *options);
    gvmm_status (*segment_create)(gvmm_device *device, const gvmm_segment_desc *desc,
        gvmm_segment **out_segment, uint64_t *out_address);
    gvmm_status (*segment_query)(gvmm_segment *segment, gvmm_segment_info *out_info);
    gvmm_status (*segment_map)(gvmm_segment *segment, uint64_t address, uint64_t size_bytes,
        uint64_t *out_address, uint64_t *out_size_bytes);
    gvmm_status (*segment_unmap)(gvmm_segment *segment, uint64_t address, uint64_t size_bytes,
        void *const *streams, size_t stream_count, uint64_t *out_bytes);
    gvmm_status (*segment_live_runs)(gvmm_segment *segment, gvmm_chunk_run *out_runs, size_t count,
        size_t stride_bytes, size_t *out_needed);
    gvmm_status (*segment_set_access)(gvmm_segment *segment, const gvmm_access *access,
        size_t count, size_t stride_bytes);
    gvmm_status (*segment_destroy)(gvmm_segment *segment);
    gvmm_status (*pool_create)(gvmm_device *device, const gvmm_pool_desc *desc,
        gvmm_pool **out_pool);
    gvmm_status (*pool_destroy)(gvmm_pool *pool);
    gvmm_status (*pool_alloc)(gvmm_pool *pool, uint64_t size_bytes, void *stream,
        uint64_t *out_address);
    gvmm_status (*pool_free)(gvmm_pool *pool, uint64_t address);
    gvmm_status (*pool_free_on)(gvmm_pool *pool, uint64_t address, void *stream);
    gvmm_status (*pool_record_stream)(gvmm_pool *pool, uint64_t address, void *stream);
    gvmm_status (*pool_forget_stream)(gvmm_pool *pool, void *stream);
    gvmm_status (*pool_find)(gvmm_pool *pool, uint64_t address, gvmm_pool_block *out_block);
    gvmm_status (*pool_trim)(gvmm_pool *pool, uint64_t *out_bytes);
    gvmm_status (*pool_set_limit)(gvmm_pool *pool, uint64_t limit_bytes);
    gvmm_status (*pool_set_fraction)(gvmm_pool *pool, double fraction);
    gvmm_status (*pool_set_access)(gvmm_pool *pool, const gvmm_access *access, size_t count,
        size_t stride_bytes);
    gvmm_status (*pool_pin)(gvmm_pool *pool, uint64_t address, uint64_t size_bytes);
    gvmm_status (*pool_unpin)(gvmm_pool *pool, uint64_t address, uint64_t size_bytes);
    gvmm_status (*pool_on_pressure)(gvmm_pool *pool, gvmm_pressure_function function,
        void *user_data);
    gvmm_status (*pool_capture_begin)(gvmm_pool *pool, uint64_t id_high, uint64_t id_low,
        gvmm_filter_function filter, void *user_data);
    gvmm_status (*pool_capture_end)(gvmm_pool *pool, uint64_t id_high, uint64_t id_low);
    gvmm_status (*pool_capture_release)(gvmm_pool *pool, uint64_t id_high, uint64_t id_low);
    gvmm_status (*pool_query)(gvmm_pool *pool, gvmm_pool_stats *out_stats);
    gvmm_status (*pool_stream_stats)(gvmm_pool *pool, gvmm_pool_stream *out_streams, size_t count,
        size_t stride_bytes, size_t *out_needed);
    gvmm_status (*pool_reset_peaks)(gvmm_pool *pool);
    gvmm_status (*pool_snapshot)(gvmm_pool *pool, char *out_json, size_t capacity,
        size_t *out_needed);
    gvmm_status (*binding_permanent)(gvmm_binding *binding, size_t slot, uint64_t *out_address);
    gvmm_status (*device_peer_query)(gvmm_device *device, uint32_t peer, uint32_t *out_reaches);
    gvmm_status (*device_peer_enable)(gvmm_device *device, uint32_t peer, uint32_t mode);
    gvmm_status (*allocation_set_access)(gvmm_allocation *allocation, const gvmm_access *access,
        size_t count, size_t stride_bytes);
} gvmm_api;

/**
 * Gives the library's functions as a table. A program that loads the library looks up this name only, and goes on without
 * where the library is missing or the answer is a failure:
 *
 * ```c
 * void *library = dlopen("libgvmm.so.0", RTLD_NOW | RTLD_LOCAL);
 * gvmm_status (*get)(uint32_t, size_t, const gvmm_api **) = library ? dlsym(library, "gvmm_get_api") : NULL;
 * if (!get || get(GVMM_VERSION_NUMBER, sizeof(gvmm_api), &api) != GVMM_STATUS_SUCCESS) do without;
 * ```
 *
 * State: needs none and changes none.
 * Parameters: `version`, GVMM_VERSION_NUMBER of the header that the program was compiled with; `size_bytes`, how much of
 * the table it uses, mostly `sizeof(gvmm_api)`; `out_api`, the table, which lives as long as the process.
 * Statuses: UNKNOWN_VERSION (the library is older than `version`, of another major version, or its table is shorter).
 * Threads: thread-safe.
 */
gvmm_status gvmm_get_api(uint32_t version,
                         size_t size_bytes,
                         const gvmm_api **out_api);

#ifdef __cplusplus
}
#endif

#endif /* GVMM_H */
