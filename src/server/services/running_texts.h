// The calls that a model generates texts for at the moment, as /slots shows them.
#pragma once
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "penstock/sampling_params.h"

namespace penstock {

// One call: as many sequences as it has choices. Its counts are written by the thread that answers it.
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
  // Shown until remove(); not to be changed from then on but for its counts.
  Place add(Call call) {
    const std::lock_guard lock(mutex_);
    return calls_.insert(calls_.end(), std::move(call));
  }
  void remove(Place place) {
    const std::lock_guard lock(mutex_);
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
};

}  // namespace penstock
