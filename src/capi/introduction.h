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
