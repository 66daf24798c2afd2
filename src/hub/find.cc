#include <algorithm>

#include "hub/hf_cache.h"
#include "hub/hub.h"
#include "hub/ollama.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHfCache = "Hugging Face cache";
constexpr const char* kLmStudio = "LM Studio";
constexpr const char* kOllama = "Ollama";

int64_t bytes_of(const std::vector<RepoFile>& files, const ModelFiles& model) {
  int64_t bytes = 0;
  for (const RepoFile& file : files) {
    if (std::ranges::binary_search(model.paths, file.path))
      bytes += std::max<int64_t>(file.size, 0);
  }
  return bytes;
}

FoundModel found_below(const fs::path& folder, const ModelName& name, const ModelFiles& model,
                       const std::vector<RepoFile>& files, const char* source) {
  ModelName full = name;
  full.what = model.entry;
  return {.path = model.entry.empty() ? folder : folder / model.entry,
          .name = full.text(),
          .source = source,
          .bytes = bytes_of(files, model),
          .missing = model.tokenizer ? "" : "a vocabulary"};
}

// Describes files of this model that the repository has and the snapshot lacks, according to the
// cached list.
std::string missing_by_tree(const HfCache& cache, const ModelName& name, const std::string& commit,
                            const ModelFiles& model) {
  const auto tree = cache.tree(name.repo, commit);
  if (!tree || !model.folder) return {};
  const ReadRepoFile read = read_below(cache.snapshot_folder(name.repo, commit));
  const auto whole =
      choose_model_files(*tree, model.entry.empty() ? name.what : model.entry, read, name.repo);
  if (!whole) return {};
  for (const std::string& path : whole->paths) {
    if (!std::ranges::binary_search(model.paths, path)) return path;
  }
  return {};
}

Result<FoundModel> find_in_hf_cache(const fs::path& root, const ModelName& name) {
  const HfCache cache(root);
  ASSIGN_OR_RETURN(const std::string commit, cache.commit_of(name.repo, name.revision));
  const fs::path folder = cache.snapshot_folder(name.repo, commit);
  const FilesBelow below = cache.snapshot(name.repo, commit);
  auto model = choose_model_files(below.files, name.what, read_below(folder), folder.string());
  if (!model && !below.refused.empty()) {
    return errorf(ErrorCode::kNotFound, "{} (refused: {} leads out of the cache)",
                  model.error().message, below.refused[0]);
  }
  if (!model) return tl::unexpected(std::move(model).error());
  FoundModel found = found_below(folder, name, *model, below.files, kHfCache);
  if (std::string missing = missing_by_tree(cache, name, commit, *model); !missing.empty())
    found.missing = missing;
  return found;
}

Result<FoundModel> find_in_lm_studio(const fs::path& root, const ModelName& name) {
  const fs::path folder = root / name.repo;
  std::error_code error;
  if (!name.has_organisation() || !name.revision.empty() || !fs::is_directory(folder, error))
    return errorf(ErrorCode::kNotFound, "{} has no {}", root.string(), name.repo);
  const FilesBelow below = files_below(folder);
  ASSIGN_OR_RETURN(const ModelFiles model,
                   choose_model_files(below.files, name.what, read_below(folder), folder.string()));
  return found_below(folder, name, model, below.files, kLmStudio);
}

Result<FoundModel> find_in_ollama(const fs::path& root, const ModelName& name) {
  if (!name.revision.empty())
    return errorf(ErrorCode::kNotFound, "{} has no revisions", root.string());
  ASSIGN_OR_RETURN(const fs::path blob, find_ollama(root, name));
  std::error_code error;
  return FoundModel{.path = blob,
                    .name = name.text(),
                    .source = kOllama,
                    .bytes = static_cast<int64_t>(fs::file_size(blob, error))};
}

// THE list of places, in the order of the search.
using FindIn = Result<FoundModel> (*)(const fs::path& root, const ModelName& name);
struct Place {
  fs::path root;
  FindIn find;
};
std::vector<Place> places(const HubSettings& settings) {
  std::vector<Place> list = {{settings.cache, find_in_hf_cache}};
  for (const fs::path& root : settings.more_caches) list.push_back({root, find_in_hf_cache});
  for (const fs::path& root : settings.lm_studio) list.push_back({root, find_in_lm_studio});
  for (const fs::path& root : settings.ollama) list.push_back({root, find_in_ollama});
  return list;
}

void list_hf_cache(const fs::path& root, std::vector<FoundModel>& models) {
  const HfCache cache(root);
  for (const std::string& repo : cache.repos()) {
    for (const HfCache::Revision& revision : cache.revisions(repo)) {
      const fs::path folder = cache.snapshot_folder(repo, revision.commit);
      const FilesBelow below = cache.snapshot(repo, revision.commit);
      const ModelName name{.repo = repo, .revision = revision.name == "main" ? "" : revision.name};
      for (const ModelFiles& model : all_models(below.files, read_below(folder)))
        models.push_back(found_below(folder, name, model, below.files, kHfCache));
    }
  }
}

void list_lm_studio(const fs::path& root, std::vector<FoundModel>& models) {
  for (const std::string& publisher : names_in(root)) {
    for (const std::string& model_name : names_in(root / publisher)) {
      const ModelName name{.repo = publisher + "/" + model_name};
      if (!is_repo_name(name.repo)) continue;
      const fs::path folder = root / publisher / model_name;
      const FilesBelow below = files_below(folder);
      for (const ModelFiles& model : all_models(below.files, read_below(folder)))
        models.push_back(found_below(folder, name, model, below.files, kLmStudio));
    }
  }
}

void list_ollama_models(const fs::path& root, std::vector<FoundModel>& models) {
  for (const OllamaModel& model : list_ollama(root)) {
    if (auto found = find_in_ollama(root, model.name); found) models.push_back(std::move(*found));
  }
}

}  // namespace

Result<FoundModel> find_on_disk(const HubSettings& settings, std::string_view text) {
  ASSIGN_OR_RETURN(const ModelName name, parse_model_name(text, settings.endpoint));
  std::string reasons;
  for (const Place& place : places(settings)) {
    auto found = place.find(place.root, name);
    if (found) return found;
    reasons += (reasons.empty() ? "" : "; ") + found.error().message;
  }
  return errorf(ErrorCode::kNotFound, "model {} is not on disk: {}", name.text(), reasons);
}

std::vector<FoundModel> models_on_disk(const HubSettings& settings) {
  std::vector<FoundModel> models;
  list_hf_cache(settings.cache, models);
  for (const fs::path& root : settings.more_caches) list_hf_cache(root, models);
  for (const fs::path& root : settings.lm_studio) list_lm_studio(root, models);
  for (const fs::path& root : settings.ollama) list_ollama_models(root, models);
  return models;
}

}  // namespace penstock
