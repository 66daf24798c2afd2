#include "cli/console/input.h"

#include <fstream>
#include <iostream>
#include <iterator>

namespace penstock {

Result<std::string> read_text(const std::string& file) {
  if (file == "-") return std::string((std::istreambuf_iterator<char>(std::cin)), {});
  std::ifstream in(file, std::ios::binary);
  if (!in) return errorf(ErrorCode::kNotFound, "{}: cannot be opened", file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (in.bad()) return errorf(ErrorCode::kIo, "{}: cannot be read", file);
  return text;
}

}  // namespace penstock
