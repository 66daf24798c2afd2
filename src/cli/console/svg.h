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

// Whether nothing but an earlier plot is lost where the file is written.
inline bool may_replace_svg(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return true;
  if (std::filesystem::file_size(path, error) == 0) return true;
  auto file = open_regular_file(path);
  if (!file) return false;
  FileStream stream(*std::move(file));
  std::string first(5, '\0');
  stream.read(first.data(), static_cast<std::streamsize>(first.size()));
  return first.starts_with("<svg") || first == "<?xml";
}

// Writes a plot. A file that is there is replaced only if it is an SVG file. Errors: kInvalidArgument (it is
// another one), kIo.
inline Status write_svg(const std::string& path, const std::string& svg) {
  if (!may_replace_svg(path))
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: not replaced: expected an SVG file there, got another one", path);
  std::ofstream out(path, std::ios::binary);
  out << svg;
  if (out.flush()) return {};
  return errorf(ErrorCode::kIo, "{}: cannot be written", path);
}

}  // namespace penstock
