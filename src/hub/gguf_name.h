// Parses names of GGUF files: shard number, quantization, and whether the file is a model.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

struct GgufName {
  // the path without "-00001-of-00003.gguf" or ".gguf"
  std::string stem;
  int shard = 1, n_shards = 1;
};

// Parses a path; an empty stem means that it is no GGUF file.
GgufName parse_gguf_name(std::string_view path);

// Whether the file accompanies a model: an image projector, an importance matrix or a draft model.
bool is_companion(std::string_view path);

// Whether the path contains the quantization's name as a separate word: Q4_K is not in Q4_K_M.
bool has_quantization(std::string_view path, std::string_view quantization);

// Whether a == b, ignoring the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace penstock
