// Adapters of experts in GGUF, made of those of PEFT.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/lora.h"

namespace penstock::testing {

// An adapter of experts' matrices as llama.cpp's converter stacks them.
inline void write_stacked(const LoraAdapter& peft, int n_layers, int n_experts, const char* arch,
                          const std::filesystem::path& path) {
  struct Stack {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::map<std::string, Stack> stacks;
  for (int layer = 0; layer < n_layers; ++layer) {
    for (int e = 0; e < n_experts; ++e) {
      for (const char* part : {"gate", "up", "down"}) {
        const std::string weight =
            fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", layer, e, part);
        const auto module = std::ranges::find(peft.modules, weight, &LoraModule::weight);
        ASSERT_NE(module, peft.modules.end()) << weight;
        const LoraPair pair = lora_pairs(*module).front();
        const std::string stem = fmt::format("blk.{}.ffn_{}_exps.weight", layer, part);
        for (const auto& [suffix, values, rows] : {std::tuple{".lora_a", &pair.a, module->rank()},
                                                   std::tuple{".lora_b", &pair.b, module->out()}}) {
          Stack& stack = stacks[stem + suffix];
          stack.shape = {n_experts, rows, static_cast<int64_t>(values->size()) / rows};
          stack.values.insert(stack.values.end(), values->begin(), values->end());
        }
      }
    }
  }
  GgufWriter writer;
  writer.set("general.architecture", arch);
  writer.set("general.type", "adapter");
  writer.set("adapter.type", "lora");
  writer.set("adapter.lora.alpha",
             peft.modules.front().scale * static_cast<float>(peft.modules.front().rank()));
  for (const auto& [name, stack] : stacks) writer.add_tensor(name, QuantType::kF32, stack.shape);
  auto file = writer.create(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  for (const auto& [name, stack] : stacks)
    ASSERT_TRUE(file->write(name, std::as_bytes(std::span(stack.values))).has_value());
  ASSERT_TRUE(file->finish().has_value());
}

}  // namespace penstock::testing
