// Where a model's vision tower is: in the model, or in an mmproj file beside a GGUF file.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/weight_source.h"
#include "penstock/engine_config.h"

namespace penstock {

// Returns the name in `names` that is the tower of the GGUF file `model`: one whose name has "mmproj"
// and either nothing else but an encoding ("mmproj-F16.gguf") or the model's name too
// ("mmproj-gemma-3-4b-it-f16.gguf"), which is preferred; of several encodings F16, BF16, F32, Q8_0.
std::optional<std::string_view> mmproj_of(std::string_view model,
                                          const std::vector<std::string>& names);

// Returns the file in the folder of a GGUF file, if there is one. Folders with more than 10,000
// files are not searched to their ends.
std::optional<std::filesystem::path> find_mmproj(const std::filesystem::path& model);

// Returns what has the tower of an open model: its own path, an mmproj file, a directory that was named,
// or nothing. mmproj: EngineConfig::mmproj. Errors: those of check_regular_file().
Result<std::optional<std::filesystem::path>> find_tower(const WeightSource& model,
                                                        const std::string& mmproj);
// Opens a directory, or an mmproj file as open_mmproj() (model/towers/mmproj.h).
Result<std::unique_ptr<WeightSource>> open_tower_file(const std::filesystem::path& path);

// Returns whether a model takes pictures, as its configuration says: weights are not loaded. Reads
// files and blocks. Errors: those of open_weights(), find_tower() and open_mmproj().
Result<bool> sees_by_its_files(const EngineConfig& config);

// Memory of a tower, estimated from its files without loading them.
struct TowerMemory {
  std::string family;
  std::filesystem::path path;
  int64_t weight_bytes = 0;
  bool apart = false;  // in a file of its own
};
// Returns nothing if the model has no tower. Errors: those of find_tower(), open_mmproj() and
// Tower::read_config().
Result<std::optional<TowerMemory>> tower_memory(const WeightSource& model,
                                                const std::string& mmproj);

}  // namespace penstock
