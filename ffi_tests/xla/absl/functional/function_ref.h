// A stand-in for absl::FunctionRef.
#ifndef STANDIN_ABSL_FUNCTION_REF_H
#define STANDIN_ABSL_FUNCTION_REF_H

#include <functional>

namespace absl {
template <class F>
using FunctionRef = std::function<F>;
}  // namespace absl

#endif
