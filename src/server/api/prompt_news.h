// Progress of prefill in a stream, in the form of llama.cpp's return_progress.
#pragma once
#include <map>
#include <nlohmann/json.hpp>

#include "server/api/generation.h"

namespace penstock {

class PromptNews {
 public:
  // polling interval
  static constexpr std::chrono::milliseconds kEvery{200};

  // Returns {total, cache, processed, time_ms} for a prompt that has advanced since the last call,
  // else null. processed: cached and computed tokens. time_ms: since construction.
  nlohmann::ordered_json next(const Generation& generation, int prompt);

 private:
  Clock::time_point start_ = Clock::now();
  std::map<int, int> told_;  // by prompt: tokens last reported
};

}  // namespace penstock
