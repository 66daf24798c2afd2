// Input files of commands.
#pragma once
#include <istream>
#include <memory>
#include <string>

#include "base/result.h"

namespace penstock {

// A regular file; standard input for "-". A descriptor that the process was started with (/dev/stdin, /dev/fd/N, as the
// shell's <(...) names one) may be anything: who gave it writes to it. Errors: of open_regular_file().
Result<std::unique_ptr<std::istream>> open_input(const std::string& file);
// All of it. Errors: of open_input(); kIo.
Result<std::string> read_text(const std::string& file);

}  // namespace penstock
