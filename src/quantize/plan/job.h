// What is to be quantized, and what came of it.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "penstock/types.h"
#include "quantize/plan/recipe.h"

namespace penstock {

struct QuantizeJob {
  // out: NAME.gguf is a GGUF file, anything else a directory
  std::filesystem::path in, out;
  RecipeOptions recipe;
  int threads = 0;
  bool force = false;  // replace what is at `out`

  // Calibration: token sequences, in order; what methods and static activations need, and what
  // --imatrix is made of.
  std::vector<std::vector<TokenId>> samples;
  std::filesystem::path imatrix;  // importance to read ("" none)

  // The tokenizer in the words of the other format, when `in` and `out` differ in it: metadata keys
  // of GGUF, or files of a directory. Called once.
  std::function<Result<nlohmann::json>(const WeightSource&)> gguf_tokenizer;
  std::function<Result<std::map<std::string, std::string>>(const WeightSource&)> tokenizer_files;

  std::function<void(int64_t done, int64_t total, const std::string& note)> progress;
  std::function<bool()> should_stop;
};

struct QuantizeReport {
  int64_t bytes_in = 0, bytes_out = 0;  // of all tensors
  int n_resumed = 0, n_parts = 0;       // parts found finished by an earlier run
  double seconds = 0;
};

}  // namespace penstock
