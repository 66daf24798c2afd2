// Medusa heads for tests, in a directory of their own.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/temp_dir.h"
#include "formats/weight_source.h"

namespace penstock {

// A file of F32 tensors with values that depend on their place, and its config.json.
struct MedusaFile {
  std::shared_ptr<TempDir> directory = std::make_shared<TempDir>();
  nlohmann::json config = {{"medusa_num_heads", 2}, {"medusa_num_layers", 1}};
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;

  MedusaFile(int n_heads, int n_layers, int dim, int vocab) {
    config = {{"medusa_num_heads", n_heads}, {"medusa_num_layers", n_layers}};
    for (int k = 0; k < n_heads; ++k) {
      for (int i = 0; i < n_layers; ++i) {
        tensors.push_back({fmt::format("{}.{}.linear.weight", k, i), {dim, dim}});
        tensors.push_back({fmt::format("{}.{}.linear.bias", k, i), {dim}});
      }
      if (vocab > 0) tensors.push_back({fmt::format("{}.{}.weight", k, n_layers), {vocab, dim}});
    }
  }
  static float value(size_t tensor, int64_t i) {
    return 0.1f * std::sin(static_cast<float>(i % 977) * 0.37f + static_cast<float>(tensor));
  }
  // Without the last `cut` bytes. Returns the directory.
  std::filesystem::path write(size_t cut = 0) const {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto& [name, shape] = tensors[t];
      const size_t begin = data.size();
      int64_t n = 1;
      for (const int64_t size : shape) n *= size;
      for (int64_t i = 0; i < n; ++i) {
        const float x = value(t, i);
        data.append(reinterpret_cast<const char*>(&x), sizeof(x));
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes += text + data;
    write_bytes(*directory / "medusa_lm_head.safetensors", bytes.substr(0, bytes.size() - cut));
    write_bytes(*directory / "config.json", config.dump());
    return directory->path();
  }
  Result<std::unique_ptr<WeightSource>> open(size_t cut = 0) const {
    return open_weights(write(cut));
  }
};

}  // namespace penstock
