// The files of src/server/ui and of docs, compiled into the program: the web page and the
// documentation need nothing from the file system.
#pragma once
#include <span>
#include <string_view>

namespace penstock {

struct EmbeddedFile {
  std::string_view name;  // "app.js", "guide/run.md"
  std::string_view tag;   // changes with the content
  std::string_view bytes;
};

std::span<const EmbeddedFile> ui_files();
std::span<const EmbeddedFile> docs_files();

}  // namespace penstock
