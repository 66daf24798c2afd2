// The running calls of a model, as /slots shows them.
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

// One call with a sequence for each choice. Its counters are written by the thread that answers it.
struct RunningCall {
  std::string tenant;  // tenant of the caller (RequestRecord::tenant)
  SamplingParams params;
  int n_prompt_tokens = 0;
  std::vector<std::atomic<int>> n_decoded;  // by choice
  std::vector<std::atomic<bool>> finished;

  explicit RunningCall(size_t n_choices) : n_decoded(n_choices), finished(n_choices) {}
};

// Thread-safe.
class RunningTexts {
 public:
  using Call = std::shared_ptr<RunningCall>;
  using Place = std::list<Call>::iterator;
  // Registers a call until remove(); afterwards only its counters may change. nullopt: more than
  // `most` choices in total, or one tenant would have more than three quarters of them. Each choice
  // is a sequence with its own memory, even while it waits.
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
  // Returns the calls in order of arrival.
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
