// Parser of multipart/form-data bodies (RFC 7578).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct FormPart {
  std::string name, filename;  // filename "": a plain field
  bool is_file = false;        // has a filename, which may be empty
  std::string_view content;    // points into the body
};

// Parses the parts of `body`. REQUIRES: `body` outlives them. Errors: kInvalidArgument (also for
// more than 32 parts, or a part's head of more than 4096 bytes).
Result<std::vector<FormPart>> read_form(std::string_view content_type, std::string_view body);

}  // namespace penstock
