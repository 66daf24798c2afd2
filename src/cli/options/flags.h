// Flags of the fields in SamplingParams::visit and EngineConfig::visit: a new field needs no edit
// here.
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

// The sampling flags and which of them the user gave; for the others the model's defaults apply.
class SamplingFlags {
 public:
  explicit SamplingFlags(CLI::App& app);
  // Returns `defaults`, overridden by the given flags.
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

// Adds the flags of EngineConfig; the model's flag is -m/--model, whose default is the built-in
// model.
void add_engine_flags(CLI::App& app, EngineConfig& config);

// Parses "512", "1.5GiB" or "800M" to bytes (K, M, G, T and KiB … are powers of 1,024). Returns the
// error, or "".
std::string parse_bytes(const std::string& text, int64_t& bytes);

}  // namespace penstock
