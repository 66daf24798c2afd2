// The cache of a grammar's masks, keyed by the hash of the state that they depend on. Thread-safe.
// The cache is cleared when it is full.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "grammar/parts/intern_table.h"
#include "grammar/vocabulary/token_set.h"

namespace penstock::grammar {

// A hash of 128 bits, so that collisions of different states are negligible.
struct StateHash {
  uint64_t a = 0x6A09E667F3BCC908, b = 0xBB67AE8584CAA73B;
  void add(uint64_t value) {
    a = mix(a, value);
    b = (b + value) * 0xD6E8FEB86659FD93;
    b ^= b >> 32;
  }
  void add(const StateHash& other) {
    add(other.a);
    add(other.b);
  }
  bool operator==(const StateHash&) const = default;
};
struct StateHashHash {
  size_t operator()(const StateHash& hash) const { return hash.a; }
};

class MaskCache {
 public:
  explicit MaskCache(size_t max_memory) : max_memory_(max_memory) {}

  std::shared_ptr<const TokenSet> find(const StateHash& key) const { return find_in(masks_, key); }
  void insert(const StateHash& key, TokenSet mask) {
    const size_t memory = mask.memory();
    insert_in(masks_, key, std::move(mask), memory);
  }
  // The suffixes after a quotation mark that a state allows.
  struct Suffixes {
    std::vector<int32_t> sure;
    // Suffixes to be tried for each token, since they depend on the text before the quotation mark.
    std::vector<int32_t> unsure;
  };
  std::shared_ptr<const Suffixes> find_suffixes(const StateHash& key) const {
    return find_in(suffixes_, key);
  }
  std::shared_ptr<const Suffixes> insert_suffixes(const StateHash& key, Suffixes suffixes) {
    const size_t memory = (suffixes.sure.capacity() + suffixes.unsure.capacity()) * sizeof(int32_t);
    return insert_in(suffixes_, key, std::move(suffixes), memory);
  }

  size_t memory() const {
    const std::scoped_lock lock(mutex_);
    return memory_;
  }

 private:
  template <class T>
  using Map = std::unordered_map<StateHash, std::shared_ptr<const T>, StateHashHash>;

  template <class T>
  std::shared_ptr<const T> find_in(const Map<T>& map, const StateHash& key) const {
    const std::scoped_lock lock(mutex_);
    const auto it = map.find(key);
    return it == map.end() ? nullptr : it->second;
  }
  template <class T>
  std::shared_ptr<const T> insert_in(Map<T>& map, const StateHash& key, T value, size_t memory) {
    auto shared = std::make_shared<const T>(std::move(value));
    const std::scoped_lock lock(mutex_);
    memory_ += memory + 128;
    if (memory_ > max_memory_) {
      masks_.clear();
      suffixes_.clear();
      memory_ = memory + 128;
    }
    map.emplace(key, shared);
    return shared;
  }

  const size_t max_memory_;
  mutable std::mutex mutex_;
  Map<TokenSet> masks_;
  Map<Suffixes> suffixes_;
  size_t memory_ = 0;
};

}  // namespace penstock::grammar
