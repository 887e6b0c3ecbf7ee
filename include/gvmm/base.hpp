// What the classes stand on: statuses, views, the table of functions, handles. Part of gvmm.hpp: include that.
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef GVMM_BASE_HPP
#define GVMM_BASE_HPP

#include "../gvmm.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#ifdef GVMM_HPP_THROW
#include <stdexcept>
#define GVMM_HPP_VARIANT throwing
#else
#define GVMM_HPP_VARIANT answering
#endif
#ifndef GVMM_HPP_LOG
#define GVMM_HPP_LOG(text) ((void)(text))
#endif

namespace gvmm {
inline namespace GVMM_HPP_VARIANT {

/// How a call ended.
class [[nodiscard]] Status {
   public:
    Status() = default;
    Status(gvmm_status code, std::string message) : code_(code), message_(std::move(message)) {}
    bool ok() const { return code_ < 100; }
    explicit operator bool() const { return ok(); }
    /// GVMM_STATUS_... or GVMM_ERROR_...
    gvmm_status code() const { return code_; }
    /// What failed, in words; empty where nothing did.
    const std::string &message() const { return message_; }

   private:
    gvmm_status code_ = GVMM_STATUS_SUCCESS;
    std::string message_;
};

#ifdef GVMM_HPP_THROW
/// A failing call.
class Error : public std::runtime_error {
   public:
    explicit Error(const Status &status) : std::runtime_error(status.message()), code_(status.code()) {}
    gvmm_status code() const { return code_; }

   private:
    gvmm_status code_;
};
#endif

/// A failure: thrown, or handed on.
inline Status failure(gvmm_status code, std::string message) {
    Status status(code, std::move(message));
#ifdef GVMM_HPP_THROW
    if (!status.ok()) throw Error(status);
#endif
    return status;
}

/// A value, or why there is none.
template <class T>
class [[nodiscard]] StatusOr {
   public:
    StatusOr(T value) : value_(std::move(value)) {}
    StatusOr(Status status) : status_(std::move(status)) {}
    bool ok() const { return value_.has_value(); }
    const Status &status() const { return status_; }
    T &value() & { return need(), *value_; }
    T &&value() && { return need(), std::move(*value_); }
    T &operator*() & { return value(); }
    T &&operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
#ifdef GVMM_HPP_THROW
    operator T() && { return std::move(*this).value(); }
#endif

   private:
    void need() const {
        if (!ok()) std::abort();
    }
    Status status_;
    std::optional<T> value_;
};

/// Elements side by side that somebody else owns.
template <class T>
class View {
   public:
    View() = default;
    View(const T *data, std::size_t size) : data_(data), size_(size) {}
    View(const T &one) : data_(&one), size_(1) {}
    template <std::size_t N>
    View(const T (&array)[N]) : data_(array), size_(N) {}
    template <class C, class = decltype(std::declval<const C &>().data())>
    View(const C &container) : data_(container.data()), size_(container.size()) {}
    const T *data() const { return data_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const T *begin() const { return data_; }
    const T *end() const { return data_ + size_; }
    const T &operator[](std::size_t i) const { return data_[i]; }

   private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};

/// Streams that a call waits for, each a vendor's own or a gvmm_stream.
using Streams = View<void *>;

/// The library's functions, or none.
class Api {
   public:
    Api() = default;
    explicit Api(const gvmm_api *table) : table_(table) {}

    /// Those of the library that the program is linked with.
    static Api linked() { return of(gvmm_get_api); }

    /// Those of a library that is opened now, and stays; none where it is missing or too old.
    static Api load(const char *path = "libgvmm.so.0") {
        void *library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void *symbol = library ? ::dlsym(library, "gvmm_get_api") : nullptr;
        return symbol ? of(reinterpret_cast<Get>(symbol)) : Api();
    }

    explicit operator bool() const { return table_ != nullptr; }
    const gvmm_api *operator->() const { return table_; }

    /// Sets options of the process; before the first device is opened.
    Status configure(const gvmm_options &options) const { return check(table_->configure(&options)); }

    /// What a call answered, with this thread's message where it failed.
    Status check(gvmm_status code) const {
        return code < 100 ? Status(code, std::string()) : failure(code, message(code));
    }

    /// The last failure of this thread in words.
    std::string message(gvmm_status code) const {
        char text[512] = "";
        std::size_t needed = 0;
        table_->last_error_message(text, sizeof text, &needed);
        return std::string(table_->status_name(code)) + ": " + text;
    }

   private:
    using Get = decltype(&gvmm_get_api);
    static Api of(Get get) {
        const gvmm_api *table = nullptr;
        return get(GVMM_VERSION_NUMBER, sizeof(gvmm_api), &table) == GVMM_STATUS_SUCCESS ? Api(table) : Api();
    }
    const gvmm_api *table_ = nullptr;
};

/// A C handle that is destroyed with its owner.
template <class T, gvmm_status (*gvmm_api::*Destroy)(T *)>
class Owned {
   public:
    using Handle = T;
    Owned() = default;
    Owned(Api api, T *handle) : api_(api), handle_(handle) {}
    Owned(Owned &&other) noexcept : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
    Owned &operator=(Owned &&other) noexcept {
        if (this != &other) {
            drop();
            api_ = other.api_;
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~Owned() { drop(); }

    T *get() const { return handle_; }
    Api api() const { return api_; }
    explicit operator bool() const { return handle_ != nullptr; }
    /// Gives the handle away.
    T *release() { return std::exchange(handle_, nullptr); }

    /// Destroys it now; where that fails it is kept.
    Status close() {
        if (!handle_) return Status();
        Status status = api_.check((api_.operator->()->*Destroy)(handle_));
        if (status.ok()) handle_ = nullptr;
        return status;
    }

   protected:
    template <class... A, class... B>
    Status call(gvmm_status (*gvmm_api::*function)(A...), B &&...arguments) const {
        return api_.check((api_.operator->()->*function)(std::forward<B>(arguments)...));
    }

   private:
    void drop() noexcept {
        T *handle = std::exchange(handle_, nullptr);
        if (!handle) return;
        gvmm_status code = (api_.operator->()->*Destroy)(handle);
        if (code >= 100) GVMM_HPP_LOG(api_.message(code).c_str());
    }
    Api api_;
    T *handle_ = nullptr;
};

/// A struct of the C ABI with its size set and all else zero.
template <class S>
S sized() {
    S value{};
    value.struct_size = sizeof value;
    return value;
}

/// Calls a function of an Api whose last output is a handle, and makes an object of that.
template <class Object, class... A, class... B>
StatusOr<Object> make(Api api, gvmm_status (*gvmm_api::*function)(A...), B &&...arguments) {
    typename Object::Handle *handle = nullptr;
    Status status = api.check((api.operator->()->*function)(std::forward<B>(arguments)..., &handle));
    if (!status.ok()) return status;
    return Object(api, handle);
}

}  // namespace GVMM_HPP_VARIANT
}  // namespace gvmm

#endif
