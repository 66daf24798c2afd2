#include "server/api/prompt_news.h"

namespace penstock {

nlohmann::ordered_json PromptNews::next(const Generation& generation, int prompt) {
  const auto total = static_cast<int>(generation.prompt_output(prompt).prompt_token_ids.size());
  const PromptProgress* const progress = generation.prompt_progress(prompt);
  const int processed = progress != nullptr ? progress->computed.load() : total;
  const auto [told, is_first] = told_.emplace(prompt, processed);
  if (!is_first && told->second >= processed) return nullptr;
  told->second = processed;
  const std::chrono::duration<double, std::milli> since = Clock::now() - start_;
  return {{"total", total},
          {"cache", progress != nullptr ? progress->cached.load() : 0},
          {"processed", processed},
          {"time_ms", since.count()}};
}

}  // namespace penstock
