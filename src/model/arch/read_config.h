// Configurations of models in files, and of named shapes.
#pragma once
#include <span>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/blocks/config.h"

namespace penstock {

// Reads and checks the configuration of any known architecture; reads no weights.
Result<ModelConfig> read_config(const WeightSource& source);

// Well-known shapes for `plan` and `bench --shape`, without a file: shapes.cc is THE list.
struct NamedShape {
  std::string_view name;  // "llama-3.1-8b"
  // its config.json, without keys that do not affect speed
  std::string_view config;
};
std::span<const NamedShape> named_shapes();
// name: of a shape, or NAME:N for its first N layers, as gpt-oss-120b:12. Errors: kNotFound,
// kInvalidArgument.
Result<ModelConfig> config_from_shape(std::string_view name);

}  // namespace penstock
