// A stand-in for absl::Span.
#ifndef STANDIN_ABSL_SPAN_H
#define STANDIN_ABSL_SPAN_H

#include <cstddef>
#include <utility>

namespace absl {

template <class T>
class Span {
   public:
    Span(T *data, std::size_t size) : data_(data), size_(size) {}
    template <class C, class = decltype(std::declval<C &>().data())>
    Span(const C &container) : data_(container.data()), size_(container.size()) {}
    T *data() const { return data_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T &operator[](std::size_t i) const { return data_[i]; }
    T *begin() const { return data_; }
    T *end() const { return data_ + size_; }

   private:
    T *data_;
    std::size_t size_;
};

}  // namespace absl

#endif
