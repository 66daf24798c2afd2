// Finds models by name in the folders of this and other tools, or downloads them.
//
// The public interface of src/hub. Thread-safe; several processes may download the same model at
// once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/settings.h"

namespace penstock {

struct FoundModel {
  // a GGUF file (the first of its shards), or a folder with a checkpoint
  std::filesystem::path path;
  // name as the user would type it: "org/name:model-Q4_K_M.gguf"
  std::string name;
  std::string source;  // "Hugging Face cache", "LM Studio", "Ollama"
  int64_t bytes = 0;   // total bytes of all files
  // Description of what may be missing: a vocabulary, or files that the repository has; "":
  // nothing.
  std::string missing;
};

// The progress of a download.
struct PullProgress {
  std::string name;             // name of the model: "org/name"
  int64_t done = 0, total = 0;  // bytes; total 0: not known yet
  int n_files = 0;
  std::string note;  // what is being waited for; "": nothing
};
// Called about ten times a second on the calling thread. Returns false to stop: the download ends
// with kCancelled; received bytes are kept and a later download resumes.
using PullObserver = std::function<bool(const PullProgress&)>;

// Finds a model on disk, or downloads it. A model that may be incomplete (FoundModel::missing) is
// completed if a server can be reached. Errors: those of the two functions below.
Result<FoundModel> resolve_model(const HubSettings& settings, std::string_view name,
                                 const PullObserver& observer);

// Downloads the newest commit of the name's revision, except for files in the cache. Offline:
// returns what is on disk. Errors: kInvalidArgument, kNotFound, kIo, kCorruptFile (wrong content,
// or a malformed answer), kResourceExhausted, kCancelled, kDeadlineExceeded.
Result<FoundModel> pull_model(const HubSettings& settings, std::string_view name,
                              const PullObserver& observer);

// Finds a model on disk only. Errors: kNotFound, with the searched folders and the problems there;
// kInvalidArgument, for a malformed name.
Result<FoundModel> find_on_disk(const HubSettings& settings, std::string_view name);

// Removes a model from the Hugging Face cache. org/name: the whole repository, including unfinished
// downloads; with a revision: its snapshot; with a file, folder or quantization: these files, in
// the revision or in all. Content that other revisions or repositories share stays. Errors:
// kNotFound; kUnsupported, when the model is in another tool's folder; kIo, when a process is
// downloading it.
struct RemovedModel {
  int64_t bytes = 0;  // bytes freed on disk
};
Result<RemovedModel> remove_model(const HubSettings& settings, std::string_view name);

// Returns all models on disk that can be given by name.
std::vector<FoundModel> models_on_disk(const HubSettings& settings);

}  // namespace penstock
