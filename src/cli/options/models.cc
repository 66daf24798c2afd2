#include "cli/options/models.h"

#include <algorithm>
#include <cstdlib>

#include "cli/console/terminal.h"
#include "cli/options/model_download.h"
#include "hub/model_name.h"

#include "formats/mapped_source.h"
#include "formats/weight_source.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

constexpr const char* kDefaultModel = "penstock-stories-15m-q8_0.gguf";
constexpr const char* kDefaultDraft = "penstock-stories-1m-q8_0.gguf";

std::string& added_folder() {
  static std::string folder;
  return folder;
}

std::vector<std::filesystem::path> folders_to_search() {
  std::vector<std::filesystem::path> folders;
  if (const char* folder = std::getenv("PENSTOCK_MODELS"); folder != nullptr && *folder != '\0') {
    folders.emplace_back(folder);
  }
  if (!added_folder().empty()) folders.emplace_back(added_folder());
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!ignored) folders.push_back(program.parent_path() / ".." / "share" / "penstock" / "models");
  folders.emplace_back(PENSTOCK_INSTALL_MODELS);
  folders.emplace_back(PENSTOCK_SOURCE_MODELS);
  return folders;
}

// Returns the path of a file in the model folders, or "" and appends the folders to `searched`.
std::filesystem::path find_in_folders(const std::string& file, std::string& searched) {
  std::error_code ignored;
  for (const auto& folder : folders_to_search()) {
    for (const std::string& candidate : {file, file + ".gguf"}) {
      if (std::filesystem::exists(folder / candidate, ignored)) return folder / candidate;
    }
    searched += (searched.empty() ? "" : ", ") + folder.lexically_normal().string();
  }
  return {};
}

Result<std::filesystem::path> find_by_name(const std::string& name) {
  ASSIGN_OR_RETURN(FoundModel found, find_or_download(name));
  if (found.name != name)
    fmt::print(stderr, "{}\n", dim(fmt::format("{} is {} ({})", name, found.name, found.source)));
  return std::move(found.path);
}

}  // namespace

void add_model_folder(std::string folder) { added_folder() = std::move(folder); }

std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> folders;
  std::error_code ignored;
  for (const auto& folder : folders_to_search()) {
    auto place = std::filesystem::canonical(folder, ignored);
    if (!ignored && std::ranges::find(folders, place) == folders.end())
      folders.push_back(std::move(place));
  }
  return folders;
}

bool is_hub_name(const std::string& name) {
  std::error_code ignored;
  return name.find_first_of("/:") != std::string::npos && !looks_like_path(name) &&
         !std::filesystem::exists(name, ignored);
}

std::string model_label(const std::string& name, const std::filesystem::path& path) {
  return is_hub_name(name) ? name : path.filename().string();
}

Result<std::filesystem::path> find_model(const std::string& name) {
  std::error_code ignored;
  if (!name.empty() && std::filesystem::exists(name, ignored)) return std::filesystem::path(name);
  std::string searched;
  const std::string file = name.empty() ? kDefaultModel : name;
  if (name.find('/') == std::string::npos) {
    if (auto found = find_in_folders(file, searched); !found.empty()) return found;
  }
  if (name.empty())
    return errorf(ErrorCode::kNotFound, "the built-in model {} is in none of: {}", file, searched);
  const std::string also = searched.empty() ? "" : fmt::format(" (also looked in {})", searched);
  if (looks_like_path(name))
    return errorf(ErrorCode::kNotFound, "model {}: no such file or directory{}", name, also);
  auto found = find_by_name(name);
  if (!found) return errorf(found.error().code, "{}{}", found.error().message, also);
  return found;
}

Status find_models(EngineConfig& config) {
  if (config.spec == "draft" && config.draft_model.empty() && config.model.empty())
    config.draft_model = kDefaultDraft;
  ASSIGN_OR_RETURN(const auto model, find_model(config.model));
  config.model = model.string();
  if (config.draft_model.empty()) return {};
  ASSIGN_OR_RETURN(const auto draft, find_model(config.draft_model));
  config.draft_model = draft.string();
  return {};
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(name));
  const std::string extension = path.extension().string();
  std::error_code error;
  const bool own_file = extension == ".json" || extension == ".model" || extension == ".tiktoken" ||
                        extension == ".v3";
  if (own_file && std::filesystem::is_regular_file(path, error)) {
    TokenizerFiles files;
    ASSIGN_OR_RETURN(const MappedFile file, open_fetched(path));
    (extension == ".json" ? files.tokenizer_json : files.tokenizer_model)
        .assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    auto tokenizer = Tokenizer::from_files(files);
    if (!tokenizer)
      return errorf(tokenizer.error().code, "{}: {}", path.string(), tokenizer.error().message);
    return tokenizer;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, open_weights(path));
  return Tokenizer::load(*source);
}

}  // namespace penstock
