// Detects changes of files.
#pragma once
#include <string>

namespace penstock {

// Returns a text made of names, sizes and modification times of a file or of the files in a folder;
// "": it does not exist.
std::string identity_of_files(const std::string& path);

}  // namespace penstock
