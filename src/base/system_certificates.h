// The system's file of trusted certificates, for libraries that were compiled for another system's place of it.
#pragma once
#include <filesystem>
#include <string>

namespace penstock {

// Path of the first file there is of the places that distributions have; "": none, and the library's own default stands.
// `root` is what the places are below, for tests.
std::string system_certificates(const std::filesystem::path& root = "/");

}  // namespace penstock
