// What a command may write over: never what it reads, and nothing but an earlier output.
#pragma once
#include <filesystem>
#include <span>

#include "formats/weight_source.h"

namespace penstock {

struct OutputPlace {
  std::filesystem::path path;
  bool is_directory = false;  // a checkpoint's, else one file
  // An earlier output may be replaced: a GGUF file, or a directory with a config.json and a model.safetensors
  // or its index, and without directories in it.
  bool replace = false;
};

// The path in normal form and with a name at its end, to which an extension can be added: `out` for `out/`.
std::filesystem::path without_slash(const std::filesystem::path& path);

// Error: kInvalidArgument: the output, OUT.partial or OUT.parts is a file that is read or has one in it (the
// source's, all of its shards, and `also_read`, of which "" are left out), or the output is there already, or
// is something else than replace allows.
Status check_output(const OutputPlace& out, const WeightSource* source,
                    std::span<const std::filesystem::path> also_read);

}  // namespace penstock
