// Identifiers and small enums shared by every layer and by users of the library.
#pragma once
#include <cstdint>

namespace penstock {

using TokenId = int32_t;  // index into the vocabulary, >= 0
inline constexpr TokenId kNoToken = -1;

enum class SeqId : uint64_t {};      // a running sequence of an engine
enum class RequestId : uint64_t {};  // a submitted request, which has n sequences
enum class BlockId : uint32_t {};    // a block of the KV cache

struct TokenLogprob {
  TokenId token = kNoToken;
  // natural log of the model's own probability, before temperature, penalties and filters
  float logprob = 0;
  int rank = 0;  // 1 = most likely
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

// "stop", "length", "abort", "error"; "" for kNone.
constexpr const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: return "error";
    case FinishReason::kNone: break;
  }
  return "";
}

}  // namespace penstock
