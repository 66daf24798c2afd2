#include "engine/open/tower_file.h"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include "base/regular_file.h"
#include "engine/open/picture_encoder.h"
#include "model/towers/mmproj.h"
#include "model/towers/tower.h"

namespace penstock {
namespace {

constexpr int kMostFiles = 10'000;
constexpr std::array<std::string_view, 5> kEncodings = {"f16", "bf16", "f32", "q8_0", "q8"};

// Returns the words of a name in lower case, without its ending and what stands for an encoding; sets
// the encoding's place in kEncodings.
std::vector<std::string> words_of(std::string_view name, size_t& encoding) {
  name = name.substr(0, name.rfind('.'));
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    const auto found = std::ranges::find(kEncodings, word);
    if (found != kEncodings.end()) {
      encoding = static_cast<size_t>(found - kEncodings.begin());
    } else if (!word.empty() && word != "model") {
      words.push_back(word);
    }
    word.clear();
  };
  for (const char c : name) {
    const bool splits = c == '-' || c == '.' || c == ' ' || (c == '_' && word != "q8");
    if (splits) {
      end();
    } else {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  end();
  return words;
}

std::string run_together(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

}  // namespace

std::optional<std::string_view> mmproj_of(std::string_view model,
                                          const std::vector<std::string>& names) {
  size_t ignored = 0;
  const std::string own = run_together(words_of(model, ignored));
  std::optional<std::string_view> best;
  std::pair<bool, size_t> best_rank;
  for (const std::string& name : names) {
    size_t encoding = kEncodings.size();
    std::vector<std::string> words = words_of(name, encoding);
    if (std::erase(words, "mmproj") == 0 || !name.ends_with(".gguf")) continue;
    const std::string rest = run_together(words);
    if (!own.starts_with(rest) && !own.ends_with(rest)) continue;
    const std::pair rank(rest.empty(), encoding);
    if (!best || rank < best_rank || (rank == best_rank && name < *best))
      best = name, best_rank = rank;
  }
  return best;
}

std::optional<std::filesystem::path> find_mmproj(const std::filesystem::path& model) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(model, error)) return {};
  std::vector<std::string> names;
  int n = 0;
  const std::filesystem::path folder = model.has_parent_path() ? model.parent_path() : ".";
  auto entry = std::filesystem::directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator() && n < kMostFiles;
       entry.increment(error), ++n) {
    std::string name = entry->path().filename().string();
    if (name.find("mmproj") != std::string::npos || name.find("MMPROJ") != std::string::npos)
      names.push_back(std::move(name));
  }
  const auto found = mmproj_of(model.filename().string(), names);
  return found ? std::optional(folder / std::string(*found)) : std::nullopt;
}

Result<std::optional<std::filesystem::path>> find_tower(const WeightSource& model,
                                                        const std::string& mmproj) {
  if (mmproj == "none") return std::nullopt;
  if (!mmproj.empty()) {
    std::error_code none;
    if (!std::filesystem::is_directory(mmproj, none)) RETURN_IF_ERROR(check_regular_file(mmproj));
    return mmproj;
  }
  if (model.naming() == Naming::kGguf) return find_mmproj(model.path());
  using Sense = PictureEncoder::Sense;
  for (const Sense sense : {Sense::kSight, Sense::kHearing})
    if (PictureEncoder::has_tower(model, sense)) return model.path();
  return std::nullopt;
}

Result<std::unique_ptr<WeightSource>> open_tower_file(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? open_weights(path) : open_mmproj(path);
}

Result<bool> sees_by_its_files(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const auto model, open_weights(config.model));
  ASSIGN_OR_RETURN(const auto path, find_tower(*model, config.mmproj));
  if (!path) return false;
  std::unique_ptr<WeightSource> apart;
  if (*path != model->path()) {
    ASSIGN_OR_RETURN(apart, open_tower_file(*path));
  }
  const auto tower = Tower::read_config(apart != nullptr ? *apart : *model);
  return tower && tower->has_value();  // a model whose tower is not known reads text
}

Result<std::optional<TowerMemory>> tower_memory(const WeightSource& model,
                                                const std::string& mmproj) {
  ASSIGN_OR_RETURN(const auto path, find_tower(model, mmproj));
  if (!path) return std::nullopt;
  TowerMemory memory{.path = *path, .apart = *path != model.path()};
  std::unique_ptr<WeightSource> file;
  if (memory.apart) {
    ASSIGN_OR_RETURN(file, open_tower_file(*path));
  }
  const WeightSource& source = memory.apart ? *file : model;
  std::vector<std::string> roots;
  std::optional<Error> failed;
  for (const TowerSense sense : {TowerSense::kHearing, TowerSense::kSight}) {
    const auto config = Tower::read_config(source, sense);
    if (!config) failed = config.error();
    if (!config || !*config) continue;
    memory.family = (*config)->family;
    roots.insert(roots.end(), (*config)->roots.begin(), (*config)->roots.end());
  }
  if (roots.empty() && failed) return tl::unexpected(*std::move(failed));
  if (roots.empty()) return std::nullopt;
  const auto of_tower = [&](const TensorInfo& tensor) {
    return std::ranges::any_of(
        roots, [&](const std::string& root) { return tensor.name.starts_with(root); });
  };
  for (const TensorInfo& tensor : source.tensors())
    if (of_tower(tensor)) memory.weight_bytes += static_cast<int64_t>(tensor.bytes.size());
  return memory;
}

}  // namespace penstock
