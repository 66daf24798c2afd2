// Request traces: when requests come, how long their prompts are, how much they generate, what they share.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "penstock/types.h"

namespace penstock {

struct TraceRequest {
  double arrival = 0;  // seconds after the first
  int prompt_tokens = 1;
  int output_tokens = 1;
  std::vector<int64_t>
      blocks;  // names of the prompt's blocks of kTraceBlock tokens; equal names, equal tokens
};
inline constexpr int kTraceBlock = 512;

// A CSV file with the columns TIMESTAMP, ContextTokens, GeneratedTokens (Azure), or JSON lines with timestamp
// (milliseconds), input_length, output_length and hash_ids (Mooncake). At most `most` requests from the
// start. Errors: kNotFound, kCorruptFile with the line.
Result<std::vector<TraceRequest>> read_trace(const std::filesystem::path& path, size_t most);

// The same load without a trace: lengths spread evenly around their means, all at once.
std::vector<TraceRequest> uniform_trace(size_t n, int mean_prompt, int mean_output);

// Tokens of a request: blocks by name where the trace names them, else tokens of its own, after shared_prefix
// tokens that all requests have in common (part of prompt_tokens).
std::vector<TokenId> trace_prompt(const TraceRequest& request, size_t index, int shared_prefix,
                                  int vocab_size);

}  // namespace penstock
