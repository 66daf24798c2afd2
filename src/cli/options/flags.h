// Flags made from the lists SamplingParams::visit and EngineConfig::visit: a new field needs no edit here.
#pragma once
#include <string>
#include <vector>

#include "penstock/engine_config.h"
#include "penstock/sampling_params.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock {

// Sampling flags and which of them the user gave: the model's own defaults hold for the others.
class SamplingFlags {
 public:
  explicit SamplingFlags(CLI::App& app);
  // `defaults` with every given flag put over it.
  SamplingParams over(const SamplingParams& defaults) const;
  bool given(const std::string& field) const;

 private:
  struct Flag {
    std::string field;
    CLI::Option* option;
  };
  SamplingParams values_;
  std::vector<Flag> flags_;
};

// Adds the engine's flags; the model is -m/--model and falls back to the built-in one when not required.
void add_engine_flags(CLI::App& app, EngineConfig& config);

// Bytes of "512", "1.5GiB", "800M" (K, M, G, T and KiB … all mean powers of 1,024).
std::string parse_bytes(const std::string& text, int64_t& bytes);  // "" or what is wrong

}  // namespace penstock
