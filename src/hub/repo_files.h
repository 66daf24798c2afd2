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
  std::string path;     // in the repository, checked by check_repo_path
  int64_t size = -1;    // bytes; -1 is unknown
  std::string blob_id;  // git's name of what is stored there: of the file, or of the pointer to a large one
  std::string lfs_sha256;  // of a large file's content, else ""
  int64_t lfs_size = -1;
  std::string xet_hash;
};

// The files that make one model, and the one of them, or the folder, that opens it.
struct ModelFiles {
  std::string entry;    // "a/model-00001-of-00002.gguf"; of a folder its path, "" is the repository itself
  bool folder = false;  // a Hugging Face checkpoint
  std::vector<std::string> paths;  // sorted
  bool tokenizer = true;           // false: a checkpoint without any file that holds a vocabulary
};

// Reads a small file of the same repository (an index of shards).
using ReadRepoFile = std::function<Result<std::string>(const std::string& path)>;

// Chooses by `what`, which is a file's path, a file's name, a folder with a checkpoint, or a quantization in a GGUF
// file's name, upper or lower case. Without it: the checkpoint at the top if there is one, else the GGUF file whose
// quantization comes first in the list of default_quantizations. Companions (mmproj, imatrix, drafters) count only when
// they are named themselves. `where` names the repository in messages.
// Errors: kNotFound with what is there instead; kCorruptFile for an index that makes no sense; kUnsupported for a
// repository of another kind.
Result<ModelFiles> choose_model_files(const std::vector<RepoFile>& files, const std::string& what,
                                      const ReadRepoFile& read, const std::string& where);

// Every model among the files: each GGUF model and each folder with a checkpoint. What is incomplete is left out.
std::vector<ModelFiles> all_models(const std::vector<RepoFile>& files, const ReadRepoFile& read);

// Best first.
const std::vector<std::string_view>& default_quantizations();

}  // namespace penstock
