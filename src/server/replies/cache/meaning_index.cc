#include "server/replies/cache/meaning_index.h"

#include <hnswlib/hnswlib.h>

#include <algorithm>

namespace penstock {
namespace {

// HNSW parameters: links per vector, and search width when adding and when searching.
constexpr size_t kLinks = 16, kBuildWidth = 100, kSearchWidth = 64;
constexpr size_t kFirstRoom = 8192;  // vectors
// vectors moved into the graph with each added vector
constexpr size_t kMovedAtOnce = 4;

float dot(const float* a, const float* b, size_t n) {
  float sum[4] = {};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (size_t j = 0; j < 4; ++j) sum[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

class MeaningIndex::Scope {
 public:
  explicit Scope(size_t dimensions) : dimensions_(dimensions), space_(dimensions) {}

  size_t dimensions() const { return dimensions_; }
  bool empty() const { return ids_.empty() && labels_.empty(); }

  void add(Id id, const float* vector, size_t small) {
    ids_.push_back(id);
    vectors_.insert(vectors_.end(), vector, vector + dimensions_);
    if (ids_.size() <= small && graph_ == nullptr) return;
    for (size_t i = 0; i < kMovedAtOnce && !ids_.empty(); ++i) {
      link(ids_.back(), vectors_.data() + vectors_.size() - dimensions_);
      ids_.pop_back();
      vectors_.resize(vectors_.size() - dimensions_);
    }
  }

  void remove(Id id) {
    if (const auto linked = labels_.find(id); linked != labels_.end()) {
      graph_->markDelete(linked->second);
      free_.push_back(linked->second);
      labels_.erase(linked);
      return;
    }
    const auto found = std::ranges::find(ids_, id);
    if (found == ids_.end()) return;
    const size_t at = static_cast<size_t>(found - ids_.begin());
    std::copy_n(vectors_.end() - static_cast<ptrdiff_t>(dimensions_), dimensions_,
                vectors_.begin() + static_cast<ptrdiff_t>(at * dimensions_));
    vectors_.resize(vectors_.size() - dimensions_);
    *found = ids_.back();
    ids_.pop_back();
  }

  std::vector<Neighbour> nearest(const float* vector, size_t k) const {
    std::vector<Neighbour> all;
    for (size_t i = 0; i < ids_.size(); ++i)
      all.push_back({ids_[i], dot(vector, vectors_.data() + i * dimensions_, dimensions_)});
    if (!labels_.empty()) {
      auto found = graph_->searchKnn(vector, std::min(k, labels_.size()));
      for (; !found.empty(); found.pop())
        all.push_back({id_of_[found.top().second], 1 - found.top().first});
    }
    const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(k, all.size()));
    std::ranges::partial_sort(all, end, std::ranges::greater(), &Neighbour::similarity);
    all.erase(end, all.end());
    return all;
  }

 private:
  using Graph = hnswlib::HierarchicalNSW<float>;

  // Labels of removed vectors are reused.
  void link(Id id, const float* vector) {
    if (graph_ == nullptr) {
      graph_ = std::make_unique<Graph>(&space_, kFirstRoom, kLinks, kBuildWidth);
      graph_->setEf(kSearchWidth);
    }
    size_t label = id_of_.size();
    if (!free_.empty()) {
      label = free_.back();
      free_.pop_back();
      id_of_[label] = id;
    } else {
      if (label >= graph_->max_elements_) graph_->resizeIndex(2 * graph_->max_elements_);
      id_of_.push_back(id);
    }
    labels_[id] = label;
    graph_->addPoint(vector, label);
  }

  const size_t dimensions_;
  hnswlib::InnerProductSpace space_;
  std::vector<Id> ids_;         // vectors outside the graph
  std::vector<float> vectors_;  // concatenated vectors of ids_
  std::unique_ptr<Graph> graph_;
  std::unordered_map<Id, size_t> labels_;  // vectors in the graph
  std::vector<Id> id_of_;                  // by label
  std::vector<size_t> free_;               // free labels
};

MeaningIndex::MeaningIndex(size_t small) : small_(small) {}
MeaningIndex::~MeaningIndex() = default;

void MeaningIndex::add(const std::string& scope, Id id, std::span<const float> vector) {
  auto& found = scopes_[scope];
  if (found == nullptr) found = std::make_unique<Scope>(vector.size());
  if (found->dimensions() == vector.size()) found->add(id, vector.data(), small_);
}

void MeaningIndex::remove(const std::string& scope, Id id) {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return;
  found->second->remove(id);
  if (found->second->empty()) scopes_.erase(found);
}

std::vector<MeaningIndex::Neighbour> MeaningIndex::nearest(const std::string& scope,
                                                           std::span<const float> vector,
                                                           size_t k) const {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end() || found->second->dimensions() != vector.size()) return {};
  return found->second->nearest(vector.data(), k);
}

}  // namespace penstock
