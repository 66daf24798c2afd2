// Whether files are those that they were.
#pragma once
#include <string>

namespace penstock {

// Of a file, or of the files of a folder: names, sizes and times of their last change. "" where
// there is none.
std::string identity_of_files(const std::string& path);

}  // namespace penstock
