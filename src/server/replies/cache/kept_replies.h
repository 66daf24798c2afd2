// The cache of replies as a server has it: the cache, and what became of the requests that it was
// asked about.
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
  kNotAsked,        // only those that ask are, and this one did not
  kRefused,         // by the request: x-penstock-cache: off, Cache-Control: no-store
  kSampled,         // drawn at random, without a seed
  kPromptLogprobs,  // log-probabilities of prompts are not kept
  // Of the search by meaning alone:
  kExactOnly,   // the request says so
  kNoQuestion,  // it does not end with a user's text
  kTools,       // it has tools, which the answer may call
  kTooLong,     // for the embedding model
  kEmbedder,    // which is not there, or has no room
};
inline constexpr int kNumBypasses = 10, kFirstNearBypass = static_cast<int>(Bypass::kExactOnly);
const char* name_of(Bypass bypass);  // "sampled", …

// Any thread.
class KeptReplies {
 public:
  // Nothing is kept where the configuration gives no room. A file that cannot be used is logged,
  // and replies are kept in memory only. embedder: the served model whose vectors tell which
  // questions mean the same; "": none.
  KeptReplies(const ReplyCacheConfig& config, const std::string& embedder, const std::string& file);

  // Null: there is no cache.
  ReplyCache* cache() const { return cache_.get(); }
  const ReplyCacheConfig& config() const { return config_; }
  const std::string& embedder() const { return embedder_; }
  bool by_meaning() const { return cache_ != nullptr && !embedder_.empty(); }

  struct Counters {
    std::atomic<int64_t> hits{0}, misses{0};  // of keys
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
