// Blocks with the values an independent decoder gives them; written by make_golden.py.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "quant/quant_type.h"
#include "support/test_data.h"

namespace penstock {

struct Golden {
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

// The name of a test of every type.
inline std::string type_name(const testing::TestParamInfo<QuantType>& param) {
  return std::string(quant_info(param.param).name);
}

inline Golden load_golden(const QuantTypeInfo& info) {
  const std::string path =
      tests_dir().string() + "/quant/golden/" + std::string(info.name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t unit =
      static_cast<size_t>(info.block_bytes) + 4 * static_cast<size_t>(info.block_size);
  EXPECT_EQ(bytes.size() % unit, 0u) << path;
  const size_t n_blocks = bytes.size() / unit;
  Golden golden;
  golden.blocks.resize(n_blocks * static_cast<size_t>(info.block_bytes));
  golden.values.resize(n_blocks * static_cast<size_t>(info.block_size));
  if (n_blocks == 0) return golden;
  std::memcpy(golden.blocks.data(), bytes.data(), golden.blocks.size());
  std::memcpy(golden.values.data(), bytes.data() + golden.blocks.size(), golden.values.size() * 4);
  return golden;
}

}  // namespace penstock
