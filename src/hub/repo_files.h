// The files of a repository, on disk or on a server, and which of them a model needs.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct RepoFile {
  // path in the repository, checked by check_repo_path()
  std::string path;
  int64_t size = -1;  // bytes; -1 is unknown
  // git's blob id of the stored file or, for a large file, of its LFS pointer
  std::string blob_id;
  std::string lfs_sha256;  // SHA-256 of a large file's content, else ""
  int64_t lfs_size = -1;
  std::string xet_hash;
};

// The files of one model and the file or folder by which it is opened.
struct ModelFiles {
  // File to open: "a/model-00001-of-00002.gguf", or path of the folder; "": the repository itself.
  std::string entry;
  // the entry is a folder with a Hugging Face checkpoint
  bool folder = false;
  std::vector<std::string> paths;  // sorted
  // false: no file of the checkpoint has a vocabulary
  bool tokenizer = true;
};

// Reads a small file of the same repository (an index of shards).
using ReadRepoFile = std::function<Result<std::string>(const std::string& path)>;

// Chooses by `what`, which is a file's path, a file's name, a folder with a checkpoint, or a
// quantization in a GGUF file's name, upper or lower case. If `what` is empty: the checkpoint in
// the top folder if there is one, else the GGUF file whose quantization is first in
// default_quantizations(). Companion files (mmproj, imatrix, draft models) are chosen only by their
// own names. `where` names the repository in messages. Errors: kNotFound, with the available
// models; kCorruptFile, for a malformed index; kUnsupported, for another kind of repository.
Result<ModelFiles> choose_model_files(const std::vector<RepoFile>& files, const std::string& what,
                                      const ReadRepoFile& read, const std::string& where);

// Returns all complete models among the files: GGUF models and folders with checkpoints.
std::vector<ModelFiles> all_models(const std::vector<RepoFile>& files, const ReadRepoFile& read);

// Returns the default quantizations in order of preference.
const std::vector<std::string_view>& default_quantizations();

}  // namespace penstock
