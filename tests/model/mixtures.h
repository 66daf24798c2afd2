// The golden mixtures that devices compute.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "kernels/philox.h"
#include "model/arch/read_config.h"
#include "model/runner.h"
#include "support/test_data.h"

namespace penstock::testing {

struct MixtureCase {
  std::filesystem::path path;
  std::string name;
};
inline void PrintTo(const MixtureCase& c, std::ostream* out) { *out << c.name; }

// Of both formats, or of directories alone.
inline std::vector<MixtureCase> mixtures_for_devices(bool gguf) {
  std::vector<MixtureCase> all;
  for (const char* kind : {"models", "mxfp4"}) {
    for (const auto& entry : std::filesystem::directory_iterator(tests_dir() / "golden" / kind)) {
      for (const std::filesystem::path& path : {entry.path(), entry.path() / "model.gguf"}) {
        if (!std::filesystem::exists(path) || (!gguf && path != entry.path())) continue;
        const auto source = open_weights(path);
        if (!source) continue;
        const ModelConfig config = read_config(**source).value();
        if (!config.needs_all().empty() || !std::ranges::any_of(config.layers, &LayerConfig::moe))
          continue;
        std::string name = std::string(kind) + "_" + entry.path().filename().string() +
                           (path == entry.path() ? "_hf" : "_gguf");
        std::ranges::replace(name, '.', '_');
        all.push_back({path, name});
      }
    }
  }
  std::ranges::sort(all, {}, &MixtureCase::name);
  return all;
}

// Of the layers that have experts, one at least.
inline std::vector<bool> drawn_places(uint64_t seed, const ModelConfig& config) {
  std::vector<bool> places(static_cast<size_t>(config.n_layers), false);
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = config.layers[i].moe && mix_seed(seed, i) % 2 == 0;
  for (size_t i = 0; std::ranges::find(places, true) == places.end(); ++i)
    places[i] = config.layers[i].moe;
  return places;
}

// Expects a sequence of the tokens, at least 13, to have the same bits alone and beside two others, in a
// prompt and in steps, which are recorded and played where that is possible.
inline void expect_same_bits_in_batches(const Model& model, Ops& ops, std::span<const int> all) {
  const auto step = [&](Runner& runner, const std::vector<int>& sequences, size_t first, size_t n) {
    const auto tokens = all.subspan(first, n);
    std::vector<Runner::Part> parts;
    for (const int sequence : sequences)
      parts.push_back({sequence, {tokens.begin(), tokens.end()}});
    return runner.step(parts);
  };
  Runner alone(model, ops), beside(model, ops);
  const Rows want = step(alone, {0}, 0, 9), got = step(beside, {0, 1, 2}, 0, 9);
  EXPECT_EQ(Rows(got.begin(), got.begin() + 9), want);
  for (size_t i = 9; i < 13; ++i)
    EXPECT_EQ(step(beside, {0, 1, 2}, i, 1)[0], step(alone, {0}, i, 1)[0]) << i;
}

}  // namespace penstock::testing
