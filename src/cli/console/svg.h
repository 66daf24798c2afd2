// Common functions of SVG plots.
#pragma once
#include <string>

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

}  // namespace penstock
