// Text to token ids, bytes of text per second on one thread.
//
//   tokenizer_bench --vocabulary FILE [--vocabulary FILE ...] --text FILE
//   [--benchmark_repetitions=5]
//
// FILE is a GGUF, a tokenizer.json or a tokenizer.model.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  if (path.ends_with(".gguf")) {
    ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, open_weights(path));
    return Tokenizer::load(*source);
  }
  TokenizerFiles files;
  (path.ends_with(".json") ? files.tokenizer_json : files.tokenizer_model) = read_file(path);
  return Tokenizer::from_files(files);
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t n = 0;
  for (auto _ : state) n = tokenizer.encode(text).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(n);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using penstock::Tokenizer;
  benchmark::Initialize(&argc, argv);
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::string text;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], path = argv[i + 1];
    if (flag == "--text") {
      text = penstock::read_file(path);
    } else if (auto tokenizer = penstock::open_tokenizer(path)) {
      tokenizers[std::filesystem::path(path).filename()] = *std::move(tokenizer);
    } else {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), tokenizer.error().message.c_str());
      return 1;
    }
  }
  if (text.empty() || tokenizers.empty()) {
    std::fprintf(stderr, "usage: tokenizer_bench --vocabulary FILE ... --text FILE\n");
    return 2;
  }
  for (const auto& [name, tokenizer] : tokenizers) {
    const Tokenizer* t = tokenizer.get();
    benchmark::RegisterBenchmark(
        name.c_str(), [t, &text](benchmark::State& s) { penstock::encode(s, *t, text); });
  }
  benchmark::RunSpecifiedBenchmarks();
}
