// Parameters and report of a quantization.
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
  // out: NAME.gguf is a GGUF file, any other name a directory
  std::filesystem::path in, out;
  RecipeOptions recipe;
  int threads = 0;
  bool force = false;  // replaces an earlier output (write/output.h)

  // Calibration: token sequences, in order, for methods, static activations and
  // --imatrix.
  std::vector<std::vector<TokenId>> samples;
  std::filesystem::path calibration;  // file of the samples, which is never written over; "": none
  std::filesystem::path imatrix;      // importance to read; "": none

  // Convert the tokenizer to the other format (metadata keys of GGUF, or files of a directory).
  // Called once, if the formats of `in` and `out` differ.
  std::function<Result<nlohmann::json>(const WeightSource&)> gguf_tokenizer;
  std::function<Result<std::map<std::string, std::string>>(const WeightSource&)> tokenizer_files;

  std::function<void(int64_t done, int64_t total, const std::string& note)> progress;
  std::function<bool()> should_stop;
};

struct QuantizeReport {
  int64_t bytes_in = 0, bytes_out = 0;  // of all tensors
  int n_resumed = 0, n_parts = 0;       // n_resumed: parts that an earlier run finished
  double seconds = 0;
};

}  // namespace penstock
