// What the name of a GGUF file says: its place among shards, its quantization, whether it is a model at all.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

struct GgufName {
  std::string stem;  // the path without "-00001-of-00003.gguf" or ".gguf"
  int shard = 1, n_shards = 1;
};

// "" as stem: no GGUF file.
GgufName parse_gguf_name(std::string_view path);

// A projector of images, an importance matrix or a drafter beside a model.
bool is_companion(std::string_view path);

// Whether the quantization's name stands in the path as a word of its own: Q4_K is not in Q4_K_M.
bool has_quantization(std::string_view path, std::string_view quantization);

// a == b but for the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace penstock
