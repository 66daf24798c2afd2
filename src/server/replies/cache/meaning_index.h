// Nearest-neighbour search among vectors, separately for each scope.
//
// A small scope is searched linearly; most scopes stay small, since every conversation with earlier
// turns has its own. A large scope is searched by an HNSW graph (hnswlib). Vectors move into the
// graph a few at a time, so that no call takes long.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/text_hash.h"

namespace penstock {

// Not thread-safe. Similarity is the inner product: for vectors of length 1 the cosine of their
// angle.
class MeaningIndex {
 public:
  using Id = uint64_t;
  struct Neighbour {
    Id id;
    float similarity;
  };

  // small: maximum number of vectors in a scope that is searched linearly.
  explicit MeaningIndex(size_t small = 4096);
  ~MeaningIndex();

  // Adds a vector; does nothing when its length differs from that of the scope's other vectors.
  // REQUIRES: id is new.
  void add(const std::string& scope, Id id, std::span<const float> vector);
  void remove(const std::string& scope, Id id);
  // Returns at most k neighbours, nearest first. The HNSW graph of a large scope may miss some.
  std::vector<Neighbour> nearest(const std::string& scope, std::span<const float> vector,
                                 size_t k) const;

 private:
  class Scope;
  const size_t small_;
  TextMap<std::unique_ptr<Scope>> scopes_;
};

}  // namespace penstock
