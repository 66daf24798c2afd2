// Plots are SVG texts; what they share.
#pragma once
#include <string>

namespace penstock {

// A text between tags: &, < and > as entities.
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
