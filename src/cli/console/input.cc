#include "cli/console/input.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <tuple>

#include "base/regular_file.h"
#include "frontend/pictures/eyes.h"

namespace penstock {

Result<std::unique_ptr<std::istream>> open_input(const std::string& file) {
  if (file == "-") return std::make_unique<std::istream>(std::cin.rdbuf());
  for (const char* own : {"/dev/stdin", "/dev/fd/", "/proc/self/fd/", "/dev/null"}) {
    if (file.starts_with(own)) return std::make_unique<std::ifstream>(file, std::ios::binary);
  }
  ASSIGN_OR_RETURN(FileDescriptor opened, open_regular_file(file));
  return std::make_unique<FileStream>(std::move(opened));
}

Result<std::string> read_text(const std::string& file) {
  ASSIGN_OR_RETURN(const auto in, open_input(file));
  std::string text((std::istreambuf_iterator<char>(*in)), {});
  if (in->bad()) return errorf(ErrorCode::kIo, "{}: cannot be read", file);
  return text;
}

Result<std::vector<ChatImage>> read_images(const std::vector<std::string>& files,
                                           const std::vector<std::string>& sounds) {
  std::vector<ChatImage> images;
  const Eyes::Limits limits;
  for (const auto& [listed, most, is_sound] : {std::tuple{&files, limits.image.max_bytes, false},
                                               std::tuple{&sounds, limits.sound.max_bytes, true}}) {
    for (const std::string& file : *listed) {
      ASSIGN_OR_RETURN(std::string bytes, read_regular_file(file, most));
      images.push_back({std::make_shared<const std::string>(std::move(bytes)), file, is_sound});
    }
  }
  return images;
}

}  // namespace penstock
