// The files of src/server/ui, compiled into the program: the web page needs nothing from the file
// system.
#pragma once
#include <span>
#include <string_view>

namespace penstock {

struct EmbeddedFile {
  std::string_view name;  // "app.js"
  std::string_view tag;   // changes with the content
  std::string_view bytes;
};

std::span<const EmbeddedFile> ui_files();

}  // namespace penstock
