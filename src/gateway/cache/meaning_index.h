// Vectors by their nearness, apart for each scope.
//
// A scope is searched one by one while it is small, which most stay (every conversation with earlier turns is one); a large
// one by a graph of neighbours (HNSW, hnswlib). Vectors move into the graph a few at a time, so that no call takes long.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace penstock {

// One thread at a time. Of vectors of length 1 the nearness is the cosine of their angle.
class MeaningIndex {
 public:
  using Id = uint64_t;
  struct Neighbour {
    Id id;
    float similarity;
  };

  // small: as many vectors of a scope as are searched one by one.
  explicit MeaningIndex(size_t small = 4096);
  ~MeaningIndex();

  // vector: as long as the others of its scope, else nothing happens. id: one that is not there.
  void add(const std::string& scope, Id id, std::span<const float> vector);
  void remove(const std::string& scope, Id id);
  // The nearest come first; at most k. Of a graph it may be that some are missed.
  std::vector<Neighbour> nearest(const std::string& scope, std::span<const float> vector, size_t k) const;
  size_t n_scopes() const { return scopes_.size(); }

 private:
  class Scope;
  const size_t small_;
  std::unordered_map<std::string, std::unique_ptr<Scope>> scopes_;
};

}  // namespace penstock
