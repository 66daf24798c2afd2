// Memory for weights, in huge pages that neighbours share.
//
// Small pages cost: a thread that reads 40 GB/s meets a new one every 0.1 us, and a virtual machine walks two page tables
// for each. A matrix of a few megabytes in an allocation of its own has up to 2 MiB of its end in small pages; so matrices
// lie one after the other in large maps, which also makes fetching beyond a matrix' end fetch the next one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace penstock {

// Bytes of one weight. Their pages go back to the system with them; their addresses go with the whole map.
class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(WeightMemory&& other) noexcept
      : map_(std::move(other.map_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  WeightMemory& operator=(WeightMemory&& other) noexcept {
    std::swap(map_, other.map_), std::swap(data_, other.data_), std::swap(size_, other.size_);
    return *this;
  }

  uint8_t* data() const { return data_; }  // null: the system refused
  size_t size() const { return data_ == nullptr ? 0 : size_; }

 private:
  friend class WeightPages;
  std::shared_ptr<const void> map_;  // null: on the heap
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Hands it out, zeroed and 64-byte aligned, larger ones at multiples of a page. One thread at a time.
class WeightPages {
 public:
  WeightMemory allocate(size_t bytes);

 private:
  std::shared_ptr<const void> map_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;  // bytes of the map from next_ on
};

}  // namespace penstock
