// Request traces: arrival times, lengths of prompts and outputs, and shared prefixes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "penstock/types.h"

namespace penstock {

struct TraceRequest {
  double arrival = 0;  // seconds after the first request
  int prompt_tokens = 1;
  int output_tokens = 1;
  // Names of the prompt's blocks of kTraceBlock tokens; blocks of the same name have the same
  // tokens.
  std::vector<int64_t> blocks;
};
inline constexpr int kTraceBlock = 512;

// Reads the first `most` requests of a trace: a CSV file with the columns TIMESTAMP, ContextTokens,
// GeneratedTokens (Azure), or JSON lines with timestamp (milliseconds), input_length, output_length
// and hash_ids (Mooncake). Errors: kNotFound, kCorruptFile (names the line).
Result<std::vector<TraceRequest>> read_trace(const std::filesystem::path& path, size_t most);

// Returns a synthetic trace: lengths are spread evenly around their means, all requests arrive at
// once.
std::vector<TraceRequest> uniform_trace(size_t n, int mean_prompt, int mean_output);

// Returns the prompt of a request: shared_prefix tokens that all requests share (they count in
// prompt_tokens), then the tokens of the named blocks or, without names, tokens that no other
// request has.
std::vector<TokenId> trace_prompt(const TraceRequest& request, size_t index, int shared_prefix,
                                  int vocab_size);

}  // namespace penstock
