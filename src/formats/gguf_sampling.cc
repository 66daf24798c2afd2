#include "formats/gguf_sampling.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace penstock {

using nlohmann::json;

namespace {

constexpr std::string_view kSamplingKeys = "general.sampling.";

// GGUF's name behind the prefix and that of a directory. counts: whole numbers.
struct SamplingKey {
  std::string_view gguf, directory;
  bool counts = false;
};
constexpr SamplingKey kRows[] = {
    {"temp", "temperature"},
    {"top_k", "top_k", true},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"penalty_repeat", "repetition_penalty"},
    {"penalty_last_n", "penalty_last_n", true},
    {"xtc_probability", "xtc_probability"},
    {"xtc_threshold", "xtc_threshold"},
    {"mirostat", "mirostat", true},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
};

// Returns the number at `key`; null: there is none, or none of this kind.
json number_at(const json& object, const std::string& key, bool counts) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return nullptr;
  const auto value = found->get<double>();
  if (!std::isfinite(value)) return nullptr;
  if (!counts) return value;
  return std::abs(value) <= 1e9 ? json(static_cast<int>(value)) : json();
}

}  // namespace

json sampling_from_gguf(const json& metadata) {
  json found = json::object();
  for (const SamplingKey& row : kRows) {
    json value = number_at(metadata, std::string(kSamplingKeys).append(row.gguf), row.counts);
    if (!value.is_null()) found[std::string(row.directory)] = std::move(value);
  }
  return found;
}

json sampling_to_gguf(const json& generation_config) {
  json metadata = json::object();
  for (const SamplingKey& row : kRows) {
    json value = number_at(generation_config, std::string(row.directory), row.counts);
    if (!value.is_null()) metadata[std::string(kSamplingKeys).append(row.gguf)] = std::move(value);
  }
  return metadata;
}

}  // namespace penstock
