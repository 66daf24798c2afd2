// Allocator for weights, in huge pages that neighbouring weights share.
//
// Small pages are slow: a thread that reads 40 GB/s meets a new one every 0.1 us, and a virtual
// machine walks two page tables for each. With an allocation of its own, up to 2 MiB at the end of
// a matrix would be in small pages; matrices therefore are contiguous in large maps. Prefetches
// beyond the end of a matrix then fetch the next one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace penstock {

// Memory of one weight. Its pages are returned to the system when it is destroyed, its addresses
// with the last weight of the map.
class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(WeightMemory&& other) noexcept
      : map_(std::move(other.map_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(other.size_) {}
  WeightMemory& operator=(WeightMemory&& other) noexcept {
    std::swap(map_, other.map_), std::swap(data_, other.data_), std::swap(size_, other.size_);
    return *this;
  }

  uint8_t* data() const { return data_; }  // null: the allocation failed
  size_t size() const { return data_ == nullptr ? 0 : size_; }

 private:
  friend class WeightPages;
  std::shared_ptr<const void> map_;  // null: on the heap
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Allocates WeightMemory, zeroed and 64-byte aligned; large blocks start at a page. Not
// thread-safe.
class WeightPages {
 public:
  WeightMemory allocate(size_t bytes);

 private:
  std::shared_ptr<const void> map_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;  // bytes of the map from next_ on
};

}  // namespace penstock
