// Lists the files below a folder that another program wrote.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_files.h"

namespace penstock {

struct FilesBelow {
  // regular files, also through links; paths are relative to the folder
  std::vector<RepoFile> files;
  std::vector<std::string> refused;  // links that lead outside `inside`
};

// Lists the files below a folder. Links to folders are not followed, broken links are omitted, and
// the number of files is bounded. inside: if not empty, links must lead below this folder, since in
// a cache that others can write to a link could name any file.
FilesBelow files_below(const std::filesystem::path& folder,
                       const std::filesystem::path& inside = {});

// Returns a reader of small files below the folder, for choose_model_files().
ReadRepoFile read_below(std::filesystem::path folder);

// Returns the sorted names in a folder; empty when the folder does not exist.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace penstock
