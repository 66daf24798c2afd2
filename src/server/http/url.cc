#include "server/http/url.h"

#include <algorithm>

namespace penstock {
namespace {

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string unescape(std::string_view text, bool plus_is_space) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      result += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      result += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

// Strips "http://host:1" from a target, the form used by clients of a proxy.
std::string_view without_authority(std::string_view target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos ||
      scheme > target.find_first_of("?/"))
    return target;
  const size_t path = target.find_first_of("/?", scheme + 3);
  return path == std::string_view::npos ? std::string_view("/") : target.substr(path);
}

}  // namespace

void parse_target(std::string_view target, std::string& path,
                  std::map<std::string, std::string>& query) {
  target = without_authority(target.substr(0, target.find('#')));
  const size_t question = target.find('?');
  path = unescape(target.substr(0, question), false);
  if (path.empty()) path = "/";
  query.clear();
  if (question == std::string_view::npos) return;
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    if (pair.empty()) continue;
    query[unescape(pair.substr(0, equals), true)] =
        equals == std::string_view::npos ? "" : unescape(pair.substr(equals + 1), true);
  }
}

}  // namespace penstock
