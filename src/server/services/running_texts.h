// The calls that a model generates texts for at the moment, as /slots shows them.
#pragma once
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/sampling_params.h"

namespace penstock {

// One call: as many sequences as it has choices. Its counts are written by the thread that answers
// it.
struct RunningCall {
  std::string tenant;  // whose it is (HttpRequest::tenant)
  SamplingParams params;
  int n_prompt_tokens = 0;
  std::vector<std::atomic<int>> n_decoded;  // by choice
  std::vector<std::atomic<bool>> finished;

  explicit RunningCall(size_t n_choices) : n_decoded(n_choices), finished(n_choices) {}
};

// Any thread.
class RunningTexts {
 public:
  using Call = std::shared_ptr<RunningCall>;
  using Place = std::list<Call>::iterator;
  // Shown until remove(); not to be changed from then on but for its counts. Nothing where there
  // are more than `most` choices with it, or more than three quarters of that are one tenant's:
  // each is a sequence with memory of its own, also while it waits.
  std::optional<Place> add(Call call, size_t most) {
    const size_t n = call->n_decoded.size();
    const std::lock_guard lock(mutex_);
    size_t& own = n_of_tenant_[call->tenant];
    if (n_choices_ + n > most || (!call->tenant.empty() && own + n > most / 4 * 3)) {
      if (own == 0) n_of_tenant_.erase(call->tenant);
      return std::nullopt;
    }
    own += n;
    n_choices_ += n;
    return calls_.insert(calls_.end(), std::move(call));
  }
  void remove(Place place) {
    const size_t n = (*place)->n_decoded.size();
    const std::lock_guard lock(mutex_);
    const auto own = n_of_tenant_.find((*place)->tenant);
    if (own != n_of_tenant_.end() && (own->second -= n) == 0) n_of_tenant_.erase(own);
    n_choices_ -= n;
    calls_.erase(place);
  }
  // In the order in which they came.
  std::vector<Call> all() const {
    const std::lock_guard lock(mutex_);
    return {calls_.begin(), calls_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::list<Call> calls_;
  std::map<std::string, size_t> n_of_tenant_;  // choices
  size_t n_choices_ = 0;
};

}  // namespace penstock
