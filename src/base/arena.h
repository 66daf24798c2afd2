// A bump allocator for one step's memory: grows to the largest step seen, then never allocates
// again.
#pragma once
#include <cstddef>
#include <vector>

namespace penstock {

inline constexpr size_t kHugePage = size_t{2} << 20;  // bytes

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // 64-byte aligned, uninitialized, valid until reset(). Never null: throws std::bad_alloc when the
  // system has no more; what was allocated before stays valid.
  void* allocate(size_t bytes);
  template <class T>
  T* allocate_array(size_t n) {
    return static_cast<T*>(allocate(n * sizeof(T)));
  }

  // Forgets every allocation. If the last round needed several chunks they are merged into one.
  void reset();

  size_t capacity() const;  // bytes held

 private:
  struct Chunk {
    std::byte* data;
    size_t size;
  };
  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // bytes used of the last chunk
};

}  // namespace penstock
