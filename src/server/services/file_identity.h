// Detects changes of files.
#pragma once
#include <string>

namespace penstock {

// Returns the common stem of the shards "model-00001-of-00003".
std::string shard_stem(const std::string& stem);

// Returns a text made of names, sizes and modification times of a file, with its other shards, or of
// the files in a folder; "": it does not exist.
std::string identity_of_files(const std::string& path);

}  // namespace penstock
