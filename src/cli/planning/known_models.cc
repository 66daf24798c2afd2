#include "cli/planning/known_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/ascii.h"
#include "base/memory.h"
#include "cli/console/terminal.h"

namespace penstock {
namespace {

constexpr int64_t kMB = 1'000'000;
// Buffers of a step, the tokenizer and the program.
constexpr int64_t kBesideWeights = int64_t{300} << 20;

// Sizes of files are approximate, smallest first; read_bytes of mixtures are estimated from the active
// parameters. KV cache: 2 x layers x KV heads x head
// dimension x 2 bytes; layers with sliding windows count as if they kept every token.
constexpr KnownModel kKnownModels[] = {
    {"Qwen/Qwen3-0.6B-GGUF:Q8_0", "0.6 B, thinks, quick answers", 639 * kMB, 639 * kMB, 114'688},
    {"ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "1 B, chat", 806 * kMB, 806 * kMB, 26'624},
    {"bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", "3 B, chat", 2'019 * kMB, 2'019 * kMB, 114'688},
    {"Qwen/Qwen3-4B-GGUF:Q4_K_M", "4 B, thinks, calls tools", 2'497 * kMB, 2'497 * kMB, 147'456},
    {"Qwen/Qwen3-8B-GGUF:Q4_K_M", "8 B, thinks, calls tools", 5'028 * kMB, 5'028 * kMB, 147'456},
    {"Qwen/Qwen3-14B-GGUF:Q4_K_M", "14 B, thinks, calls tools", 9'002 * kMB, 9'002 * kMB, 163'840},
    {"ggml-org/gpt-oss-20b-GGUF", "21 B, 3.6 B active, thinks, calls tools", 12'110 * kMB,
     2'400 * kMB, 49'152},
    {"Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", "31 B, 3.3 B active, thinks, calls tools", 18'557 * kMB,
     2'100 * kMB, 98'304},
    {"Qwen/Qwen3-32B-GGUF:Q4_K_M", "33 B, thinks, calls tools", 19'762 * kMB, 19'762 * kMB,
     262'144},
    {"bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M", "71 B, chat, calls tools", 42'520 * kMB,
     42'520 * kMB, 327'680},
    {"ggml-org/gpt-oss-120b-GGUF", "117 B, 5.1 B active, thinks, calls tools", 63'390 * kMB,
     3'400 * kMB, 73'728},
};

// Returns the letters and digits, in lower case.
std::string bare(std::string_view text) {
  std::string letters = ascii_lower(text);
  std::erase_if(letters, [](char c) { return !is_ascii_alnum(c); });
  return letters;
}

}  // namespace

std::span<const KnownModel> known_models() { return kKnownModels; }

int64_t needed_memory(const KnownModel& model) {
  return model.file_bytes + model.token_bytes * kConversationTokens + kBesideWeights;
}

std::string fitting_models(int64_t memory, double read_bytes_per_second, int most) {
  std::vector<KnownModel> fitting;
  std::ranges::copy_if(known_models(), std::back_inserter(fitting),
                       [&](const KnownModel& model) { return needed_memory(model) <= memory; });
  std::ranges::reverse(fitting);
  if (std::cmp_less(most, fitting.size())) fitting.resize(static_cast<size_t>(most));
  std::string table;
  for (const KnownModel& model : fitting) {
    table += fmt::format("  {:46} {:>9} to download, {:>9} in memory", model.name,
                         format_bytes(static_cast<double>(model.file_bytes)),
                         format_bytes(static_cast<double>(needed_memory(model))));
    if (read_bytes_per_second > 0) {
      table += fmt::format(", at most {:3.0f} tokens/s",
                           read_bytes_per_second / static_cast<double>(model.read_bytes));
    }
    table += fmt::format("; {}\n", model.about);
  }
  return table;
}

Error with_similar_models(Error error, std::string_view name) {
  constexpr int kMost = 3;
  const std::string wanted = bare(name);
  if (wanted.size() < 3 || name.find('/') != std::string_view::npos) return error;
  std::vector<const char*> fitting;
  const char* smallest = nullptr;
  for (const KnownModel& model : known_models()) {
    if (bare(model.name).find(wanted) == std::string::npos) continue;
    if (smallest == nullptr) smallest = model.name;
    if (needed_memory(model) <= available_memory()) fitting.insert(fitting.begin(), model.name);
  }
  if (fitting.empty() && smallest != nullptr) fitting.push_back(smallest);
  if (fitting.size() > kMost) fitting.resize(kMost);
  if (!fitting.empty())
    error.message += fmt::format("; did you mean {}?", fmt::join(fitting, ", "));
  return error;
}

}  // namespace penstock
