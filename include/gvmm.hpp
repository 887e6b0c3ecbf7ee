// gvmm.hpp: C++17 classes over the C ABI of gvmm.h, header only.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Every handle is a class that moves, destroys what it holds, and gives the C handle by get(). All calls go through the
// library's table of functions, an Api: Api::linked() where the program links the library, Api::load() where it opens it
// while it runs. An Api that found no library, or one that is too old, is false; do without then.
//
//     gvmm::Api api = gvmm::Api::load();
//     if (!api) return old_path();
//     gvmm::StatusOr<gvmm::Device> device = gvmm::Device::open(api, GVMM_DRIVER_HIP, 0);
//     if (!device.ok()) return fail(device.status().message());
//     auto block = gvmm::Block::create(*device, size);
//
// A failing call answers a Status, with the C status as its code and this thread's message. With GVMM_HPP_THROW defined
// before the header is included it throws a gvmm::Error instead, and a StatusOr<T> can be used as its T. A destructor
// cannot answer: it hands what failed to GVMM_HPP_LOG(text), which does nothing unless it is defined before; close() is
// the same with an answer, and keeps the handle where it fails.
//
// gvmm.h says what each call does, its units and its threads. An object must not outlive the device that it was made of.
#ifndef GVMM_HPP
#define GVMM_HPP

#include "gvmm/binding.hpp"
#include "gvmm/mapping.hpp"
#include "gvmm/objects.hpp"
#include "gvmm/pool.hpp"
#include "gvmm/state.hpp"

#endif
