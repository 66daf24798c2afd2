// Common functions of SVG plots.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "base/regular_file.h"
#include "base/result.h"

namespace penstock {

// Escapes a text between tags: &, < and > become entities.
inline std::string svg_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

// Checks that nothing but an earlier plot is lost where a plot will be written; to be called before what it
// shows is measured. "" is no place. Error: kInvalidArgument (another file is there).
inline Status check_svg(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || begins_with(path, "<svg")) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}: not replaced: expected a plot there, which begins with <svg, got another file",
                path);
}

// Writes a plot. Errors: those of check_svg(); kIo.
inline Status write_svg(const std::string& path, const std::string& svg) {
  RETURN_IF_ERROR(check_svg(path));
  std::ofstream out(path, std::ios::binary);
  out << svg;
  if (out.flush()) return {};
  return errorf(ErrorCode::kIo, "{}: cannot be written", path);
}

}  // namespace penstock
