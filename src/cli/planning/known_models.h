// Well-known models and the memory that they take: what to download, without asking a hub.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/result.h"

namespace penstock {

struct KnownModel {
  const char* name;         // as `penstock pull` takes it: "org/name:Q4_K_M"
  const char* about;        // one line: size and purpose
  int64_t file_bytes = 0;   // size of the download, about that of the weights in memory
  int64_t read_bytes = 0;   // bytes of weights that one token reads: less than all for mixtures
  int64_t token_bytes = 0;  // bytes of KV cache per token, F16
};

// Returns the models, smallest first.
std::span<const KnownModel> known_models();

// Length in tokens of the conversation for which memory is counted.
inline constexpr int64_t kConversationTokens = 8192;

// Returns the bytes of memory that the model takes with one conversation of that length.
int64_t needed_memory(const KnownModel& model);

// Returns a table of the models that fit into `memory` bytes, largest first, at most `most` rows:
// name, size of the download, memory, and what it is. With read_bytes_per_second > 0 also the most
// tokens per second that reading the weights allows. "": none fits.
std::string fitting_models(int64_t memory, double read_bytes_per_second, int most);

// Returns the error of a model that was not found, with up to three well-known names that have this
// name in them (letters of either case, without punctuation): those that fit into free memory,
// largest first, or the smallest one if none fits. Names of one or two letters are not looked for.
Error with_similar_models(Error error, std::string_view name);

}  // namespace penstock
