// The files below a folder that another program filled.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_files.h"

namespace penstock {

struct FilesBelow {
  std::vector<RepoFile> files;       // regular files, also behind a link; paths relative to the folder
  std::vector<std::string> refused;  // links to somewhere outside of `inside`
};

// Links to folders are not entered, links that lead nowhere are left out, and the walk ends at a bound that no model reaches.
// With `inside`, a link must lead below that folder: in a cache that others can write to it could name any file.
FilesBelow files_below(const std::filesystem::path& folder, const std::filesystem::path& inside = {});

// Reads a small file below the folder, for choose_model_files.
ReadRepoFile read_below(std::filesystem::path folder);

// The names in a folder, sorted; none when there is no such folder.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace penstock
