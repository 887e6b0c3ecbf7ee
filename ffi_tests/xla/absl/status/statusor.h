// A stand-in: as much of absl's statuses as docs/xla.md uses.
#ifndef STANDIN_ABSL_STATUSOR_H
#define STANDIN_ABSL_STATUSOR_H

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace absl {

enum class StatusCode { kOk, kInvalidArgument, kNotFound, kFailedPrecondition, kResourceExhausted, kInternal, kUnimplemented };

class [[nodiscard]] Status {
   public:
    Status() = default;
    Status(StatusCode code, std::string_view message) : code_(code), message_(message) {}
    bool ok() const { return code_ == StatusCode::kOk; }
    StatusCode code() const { return code_; }
    std::string_view message() const { return message_; }

   private:
    StatusCode code_ = StatusCode::kOk;
    std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InternalError(std::string_view text) { return Status(StatusCode::kInternal, text); }
inline Status NotFoundError(std::string_view text) { return Status(StatusCode::kNotFound, text); }
inline Status InvalidArgumentError(std::string_view text) { return Status(StatusCode::kInvalidArgument, text); }
inline Status ResourceExhaustedError(std::string_view text) { return Status(StatusCode::kResourceExhausted, text); }
inline Status FailedPreconditionError(std::string_view text) { return Status(StatusCode::kFailedPrecondition, text); }

template <class T>
class [[nodiscard]] StatusOr {
   public:
    StatusOr(Status status) : status_(std::move(status)) {}
    template <class U, class = std::enable_if_t<std::is_convertible_v<U &&, T>>>
    StatusOr(U &&value) : value_(std::forward<U>(value)) {}
    bool ok() const { return value_.has_value(); }
    const Status &status() const { return status_; }
    T &value() & { return check(), *value_; }
    T &operator*() & { return value(); }
    T &&operator*() && { return check(), std::move(*value_); }
    T *operator->() { return &value(); }

   private:
    void check() const {
        if (!ok()) std::abort();
    }
    Status status_;
    std::optional<T> value_;
};

}  // namespace absl

#define RETURN_IF_ERROR(call)                      \
    if (absl::Status status_ = (call); !status_.ok()) return status_
#define STANDIN_JOIN2(a, b) a##b
#define STANDIN_JOIN(a, b) STANDIN_JOIN2(a, b)
#define STANDIN_ASSIGN(name, left, call) \
    auto name = (call);                  \
    if (!name.ok()) return name.status(); \
    left = *std::move(name)
#define ASSIGN_OR_RETURN(left, call) STANDIN_ASSIGN(STANDIN_JOIN(result_, __LINE__), left, call)

#endif
