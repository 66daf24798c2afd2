#include "server/routing/client_reason.h"

namespace penstock {

std::string without_folders(std::string_view message) {
  constexpr std::string_view kEnds = " \t\n:,;\"'()[]{}";
  std::string text;
  while (!message.empty()) {
    const size_t word = message.find_first_not_of(kEnds);
    text += message.substr(0, word);
    if (word == std::string_view::npos) break;
    message.remove_prefix(word);
    const std::string_view path = message.substr(0, message.find_first_of(kEnds));
    message.remove_prefix(path.size());
    const size_t end = path.find_last_not_of('/');
    const bool absolute = path.front() == '/' && end != std::string_view::npos;
    const size_t slash = absolute ? path.find_last_of('/', end) : std::string_view::npos;
    const bool in_folder = slash != std::string_view::npos && slash > 0;  // not /wake_up
    text += in_folder ? path.substr(slash + 1) : path;
  }
  return text;
}

}  // namespace penstock
