// How far the prompts of a stream are computed, as llama.cpp's return_progress has it.
#pragma once
#include <map>
#include <nlohmann/json.hpp>

#include "server/api/generation.h"

namespace penstock {

class PromptNews {
 public:
  // How often it is worth a look.
  static constexpr std::chrono::milliseconds kEvery{200};

  // {total, cache, processed, time_ms} of a prompt when more of it is computed than was told; else
  // null. Tokens: `processed` are those in the cache and those computed. time_ms: since the start.
  nlohmann::ordered_json next(const Generation& generation, int prompt);

 private:
  Clock::time_point start_ = Clock::now();
  std::map<int, int> told_;  // by prompt
};

}  // namespace penstock
