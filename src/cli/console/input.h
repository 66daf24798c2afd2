// Input files of commands.
#pragma once
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/chat.h"

namespace penstock {

// Opens a regular file, or standard input for "-". Inherited descriptors (/dev/stdin, /dev/fd/N, as
// in the shell's <(...)) may be of any type. Errors: those of open_regular_file().
Result<std::unique_ptr<std::istream>> open_input(const std::string& file);
// Reads a whole file. Errors: those of open_input(); kIo.
Result<std::string> read_text(const std::string& file);
// Reads image files, and sound files, as they are; what they hold is checked where they are used. Errors:
// those of read_regular_file(), with at most the bytes of an image or a sound.
Result<std::vector<ChatImage>> read_images(const std::vector<std::string>& files,
                                           const std::vector<std::string>& sounds = {});

}  // namespace penstock
