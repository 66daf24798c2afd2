// Input files of commands.
#pragma once
#include <string>

#include "base/result.h"

namespace penstock {

// The file's bytes, or standard input for "-". Errors: kNotFound, kIo.
Result<std::string> read_text(const std::string& file);

}  // namespace penstock
