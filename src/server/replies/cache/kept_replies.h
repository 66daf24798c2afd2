// The server's reply cache with its counters.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "server/replies/cache/reply_cache.h"

namespace penstock {

// Why a request was not answered from the cache.
enum class Bypass : uint8_t {
  kNone,
  // the cache is opt-in, and the request did not ask for it
  kNotAsked,
  // the request disables it: x-penstock-cache: off, Cache-Control: no-store
  kRefused,
  kSampled,         // sampled without a seed
  kPromptLogprobs,  // prompt log-probabilities are not recorded
  // The others apply to the search by meaning only.
  kExactOnly,   // the request allows exact matches only
  kNoQuestion,  // the chat does not end with a user's text
  // the request has tools, which the answer may call
  kTools,
  // the question is too long for the embedding model
  kTooLong,
  kEmbedder,  // the embedding model is unavailable or busy
};
inline constexpr int kNumBypasses = 10, kFirstNearBypass = static_cast<int>(Bypass::kExactOnly);
const char* name_of(Bypass bypass);  // "sampled", …

// Thread-safe.
class KeptReplies {
 public:
  // Makes no cache if the configuration gives it no bytes. If the file cannot be used, this is
  // logged and replies are kept in memory only. embedder: served model whose vectors compare
  // questions by meaning; "": exact matches only.
  KeptReplies(const ReplyCacheConfig& config, const std::string& embedder, const std::string& file);

  // null: there is no cache
  ReplyCache* cache() const { return cache_.get(); }
  const ReplyCacheConfig& config() const { return config_; }
  const std::string& embedder() const { return embedder_; }
  bool by_meaning() const { return cache_ != nullptr && !embedder_.empty(); }

  struct Counters {
    std::atomic<int64_t> hits{0}, misses{0};  // exact matches
    std::atomic<int64_t> near_hits{0}, near_misses{0}, near_refused{0};
    std::array<std::atomic<int64_t>, kNumBypasses> bypassed{}, near_bypassed{};
    std::atomic<int64_t> prompt_tokens_saved{0}, completion_tokens_saved{0};
  };
  Counters counters;

 private:
  const ReplyCacheConfig config_;
  const std::string embedder_;
  std::unique_ptr<ReplyCache> cache_;
};

}  // namespace penstock
