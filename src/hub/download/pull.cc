#include <algorithm>

#include "hub/download/fetch.h"
#include "hub/download/hf_cache_writer.h"
#include "hub/hub.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

// Downloads one model from the hub to the cache.
class Pull {
 public:
  Pull(const HubSettings& settings, ModelName name, const PullObserver& observer)
      : settings_(settings),
        name_(std::move(name)),
        observer_(observer),
        client_(settings),
        api_(settings, client_),
        cache_(settings.cache) {}

  Status run();

 private:
  // Returns names and sizes of the commit's files, from the cache or from the server.
  Result<std::vector<RepoFile>> list_files(const std::string& commit, const HfCacheWriter& writer);
  Status fetch(const std::vector<std::string>& paths);  // sorted
  bool is_there(const RepoFile& file) const;
  // Downloads a small file to the cache and returns its content.
  Result<std::string> read(const std::string& path);
  bool wait(const std::string& note) const;

  const HubSettings& settings_;
  ModelName name_;
  const PullObserver& observer_;
  HttpClient client_;
  HubApi api_;
  HfCache cache_;
  FetchContext* context_ = nullptr;
  const std::vector<RepoFile>* files_ = nullptr;
};

bool Pull::wait(const std::string& note) const {
  return observer_({.name = name_.text(), .note = note});
}

Result<std::vector<RepoFile>> Pull::list_files(const std::string& commit,
                                               const HfCacheWriter& writer) {
  if (auto kept = cache_.tree(name_.repo, commit)) return std::move(*kept);
  auto files = api_.tree(name_.repo, commit, [&](const std::string& note) { return wait(note); });
  if (files) writer.write_tree(*files);
  return files;
}

Status Pull::fetch(const std::vector<std::string>& paths) {
  std::vector<RepoFile> wanted;
  for (const RepoFile& file : *files_) {
    if (std::ranges::binary_search(paths, file.path) && !is_there(file)) wanted.push_back(file);
  }
  return fetch_files(*context_, wanted, [&](const FetchProgress& progress) {
    return observer_({name_.text(), progress.done, progress.total, static_cast<int>(wanted.size()),
                      progress.note});
  });
}

// Whether the snapshot has the file. Commits are immutable, so it need not be requested.
bool Pull::is_there(const RepoFile& file) const {
  std::error_code error;
  const std::filesystem::path path =
      cache_.snapshot_folder(name_.repo, context_->commit) / file.path;
  return std::filesystem::is_regular_file(path, error) &&
         static_cast<int64_t>(std::filesystem::file_size(path, error)) == file.size;
}

Result<std::string> Pull::read(const std::string& path) {
  RETURN_IF_ERROR(fetch({path}));
  return read_below(cache_.snapshot_folder(name_.repo, context_->commit))(path);
}

Status Pull::run() {
  const auto keep_waiting = [&](const std::string& note) { return wait(note); };
  ASSIGN_OR_RETURN(const std::string commit, api_.commit(name_.repo, name_.revision, keep_waiting));
  const HfCacheWriter writer(cache_, name_.repo, commit, settings_.symlinks);
  RETURN_IF_ERROR(writer.prepare());
  FetchContext context{settings_, client_, api_, writer, name_.repo, commit};
  context_ = &context;
  ASSIGN_OR_RETURN(const std::vector<RepoFile> files, list_files(commit, writer));
  files_ = &files;
  ASSIGN_OR_RETURN(
      const ModelFiles model,
      choose_model_files(
          files, name_.what, [&](const std::string& path) { return read(path); }, name_.repo));
  RETURN_IF_ERROR(fetch(model.paths));
  return writer.write_ref(name_.revision);
}

// Finds a model in the hub's cache only, to which downloads go.
Result<FoundModel> find_in_cache(const HubSettings& settings, std::string_view name) {
  HubSettings only = settings;
  only.more_caches.clear();
  only.lm_studio.clear();
  only.ollama.clear();
  return find_on_disk(only, name);
}

}  // namespace

Result<FoundModel> pull_model(const HubSettings& settings, std::string_view text,
                              const PullObserver& observer) {
  ASSIGN_OR_RETURN(const ModelName name, parse_model_name(text, settings.endpoint));
  if (settings.offline) {
    auto found = find_in_cache(settings, text);
    if (found) return found;
    return errorf(found.error().code, "{}; HF_HUB_OFFLINE is set, so nothing is downloaded",
                  found.error().message);
  }
  if (!name.has_organisation() || looks_like_path(text)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected org/name, as only such names can be downloaded", printable(text));
  }
  RETURN_IF_ERROR(Pull(settings, name, observer).run());
  return find_in_cache(settings, text);
}

Result<FoundModel> resolve_model(const HubSettings& settings, std::string_view text,
                                 const PullObserver& observer) {
  ASSIGN_OR_RETURN(const ModelName name, parse_model_name(text, settings.endpoint));
  auto found = find_on_disk(settings, text);
  if (found && found->missing.empty()) return found;
  if (!found && (settings.offline || !name.has_organisation())) {
    return errorf(found.error().code, "{}; {}", found.error().message,
                  settings.offline ? "HF_HUB_OFFLINE is set, so it was not downloaded"
                                   : "only org/name can be downloaded");
  }
  if (settings.offline || !name.has_organisation()) return found;
  auto pulled = pull_model(settings, text, observer);
  if (pulled || pulled.error().code == ErrorCode::kCancelled) return pulled;
  if (found) return found;  // may be usable although incomplete
  return errorf(pulled.error().code, "{}; and {}", pulled.error().message, found.error().message);
}

}  // namespace penstock
