#include "cli/models.h"

#include <cstdlib>
#include <vector>

namespace penstock {
namespace {

constexpr const char* kDefaultModel = "penstock-stories-15m-q8_0.gguf";
constexpr const char* kDefaultDraft = "penstock-stories-1m-q8_0.gguf";

std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* folder = std::getenv("PENSTOCK_MODELS"); folder != nullptr && *folder != '\0') {
    folders.emplace_back(folder);
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!ignored) folders.push_back(program.parent_path() / ".." / "share" / "penstock" / "models");
  folders.emplace_back(PENSTOCK_INSTALL_MODELS);
  folders.emplace_back(PENSTOCK_SOURCE_MODELS);
  return folders;
}

}  // namespace

Result<std::filesystem::path> find_model(const std::string& name) {
  std::error_code ignored;
  if (!name.empty() && std::filesystem::exists(name, ignored)) return std::filesystem::path(name);
  std::string searched;
  const std::string file = name.empty() ? kDefaultModel : name;
  if (name.find('/') == std::string::npos) {
    for (const auto& folder : model_folders()) {
      for (const std::string& candidate : {file, file + ".gguf"}) {
        if (std::filesystem::exists(folder / candidate, ignored)) return folder / candidate;
      }
      searched += (searched.empty() ? "" : ", ") + folder.lexically_normal().string();
    }
  }
  if (name.empty())
    return errorf(ErrorCode::kNotFound, "the built-in model {} is in none of: {}", file, searched);
  return errorf(ErrorCode::kNotFound, "model {}: no such file or directory{}", name,
                searched.empty() ? "" : " (also looked in " + searched + ")");
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

}  // namespace penstock
