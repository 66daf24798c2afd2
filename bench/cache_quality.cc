// Perplexities of models with each type of KV cache, as a table of bench/results: also with keys and
// values of 4 bits that are rounded as they are, without the rotation that the engine always takes.
// Usage: bench_cache_quality TEXT MODEL...; TEXT: documents parted by <|endoftext|>, each scored by
// itself in one step of a batch-invariant CPU backend, up to 512 tokens.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "model/batch_builder.h"
#include "model/model.h"
#include "ops/cpu/kv_cache.h"
#include "penstock/llm.h"

namespace penstock {
namespace {

constexpr int kMostTokens = 512, kBlock = 16;

struct Cache {
  const char* name;
  KvDType dtype;
  bool rotates = true;
};
constexpr Cache kCaches[] = {{"f16", KvDType::kF16},
                             {"int8", KvDType::kI8},
                             {"int4", KvDType::kI4},
                             {"int4, not rotated", KvDType::kI4, false}};

std::vector<std::string> documents_of(const char* path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {}), mark = "<|endoftext|>",
                                                                    space = " \t\r\n";
  std::vector<std::string> documents;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t first = part.find_first_not_of(space);
    if (first != std::string::npos)
      documents.push_back(part.substr(first, part.find_last_not_of(space) + 1 - first));
    at = end + mark.size();
  }
  return documents;
}

Result<std::vector<std::vector<TokenId>>> sequences_of(const char* path,
                                                       const std::vector<std::string>& documents) {
  EngineConfig config;
  config.model = path;
  config.threads = 1;
  ASSIGN_OR_RETURN(const auto llm, LLM::open(config));
  const auto most = static_cast<size_t>(std::min(kMostTokens, llm->engine().info().max_model_len));
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& document : documents) {
    std::vector<TokenId> tokens = llm->encode(document, true, false);
    tokens.resize(std::min(tokens.size(), most));
    if (tokens.size() > 1) sequences.push_back(std::move(tokens));
  }
  return sequences;
}

// Negative logarithm of the probability that the logits in front of a token give it, in nats.
double surprise(const std::vector<float>& logits, TokenId token) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - most));
  return std::log(sum) + most - logits[static_cast<size_t>(token)];
}

Result<double> perplexity(const Model& model, Ops& ops, const Cache& type,
                          const std::vector<std::vector<TokenId>>& sequences) {
  const CacheSpec spec = model.cache_spec(type.dtype, kBlock);
  const std::vector<int> blocks(static_cast<size_t>(spec.n_groups()), kMostTokens / kBlock);
  ASSIGN_OR_RETURN(const auto cache, ops.make_cache(spec, blocks));
  if (!type.rotates) static_cast<CpuKvCache&>(*cache).leave_unrotated();
  double sum = 0;
  size_t n = 0;
  std::vector<float> row(static_cast<size_t>(model.config().vocab_size));
  for (const std::vector<TokenId>& tokens : sequences) {
    const auto n_tokens = static_cast<int>(tokens.size());
    const GroupBlocks kv = consecutive_blocks(0, n_tokens, kBlock);
    BatchBuilder builder(spec);
    builder.add({.tokens = tokens,
                 .kv = {&kv, 1},
                 .rows = BatchPart::Rows::kAll,
                 .long_rope = model.takes_long_rope(n_tokens)});
    const Tensor logits = model.forward(builder.build(), *cache, ops).logits;
    for (int i = 0; i + 1 < n_tokens; ++i, ++n) {
      ops.read_rows(logits.row_range(i, 1), row);
      sum += surprise(row, tokens[static_cast<size_t>(i) + 1]);
    }
  }
  return std::exp(sum / static_cast<double>(n));
}

Status print_model(const char* path, const std::vector<std::string>& documents) {
  ASSIGN_OR_RETURN(const auto sequences, sequences_of(path, documents));
  ASSIGN_OR_RETURN(const auto source, open_weights(path));
  ASSIGN_OR_RETURN(const auto ops, make_ops("cpu", {.n_threads = 1, .batch_invariant = true}));
  ASSIGN_OR_RETURN(const auto model, Model::load(*source, *ops));
  double first = 0;
  std::printf("| %s |", std::filesystem::path(path).stem().c_str());
  for (const Cache& cache : kCaches) {
    ASSIGN_OR_RETURN(const double found, perplexity(*model, *ops, cache, sequences));
    std::printf(" %.4f", found);
    if (first > 0) std::printf(" (%+.2f %%)", 100 * (found / first - 1));
    std::printf(" |");
    std::fflush(stdout);
    first = first > 0 ? first : found;
  }
  std::printf("\n");
  return {};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s TEXT MODEL...\n", argv[0]), 2;
  const std::vector<std::string> documents = penstock::documents_of(argv[1]);
  std::printf("| model |");
  for (const penstock::Cache& cache : penstock::kCaches) std::printf(" %s |", cache.name);
  std::printf("\n|---|---|---|---|---|\n");
  for (int i = 2; i < argc; ++i) {
    if (const penstock::Status done = penstock::print_model(argv[i], documents); !done) {
      std::fprintf(stderr, "%s: %s\n", argv[i], done.error().message.c_str());
      return 1;
    }
  }
  return 0;
}
