#include "server/replies/cache/kept_replies.h"

#include <spdlog/spdlog.h>

#include "base/log.h"

namespace penstock {

const char* name_of(Bypass bypass) {
  switch (bypass) {
    case Bypass::kNone: return "";
    case Bypass::kNotAsked: return "not-asked";
    case Bypass::kRefused: return "refused";
    case Bypass::kSampled: return "sampled";
    case Bypass::kPromptLogprobs: return "prompt-logprobs";
    case Bypass::kExactOnly: return "exact-only";
    case Bypass::kNoQuestion: return "no-question";
    case Bypass::kTools: return "tools";
    case Bypass::kTooLong: return "too-long";
    case Bypass::kEmbedder: return "embedder";
  }
  return "";
}

KeptReplies::KeptReplies(const ReplyCacheConfig& config, const std::string& embedder,
                         const std::string& file)
    : config_(config), embedder_(embedder) {
  if (config.bytes <= 0) return;
  auto opened = ReplyCache::open(config, file);
  if (!opened) {
    log().error("replies are kept in memory only: {}", opened.error().message);
    opened = ReplyCache::open(config, {});
  }
  if (opened) cache_ = std::move(*opened);
}

}  // namespace penstock
