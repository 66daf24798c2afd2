#include "grammar/schema/json_pointer.h"

#include <fmt/format.h>

#include <vector>

namespace penstock::grammar {
namespace {

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~!$&'()*+,;=:@").find(c) != std::string_view::npos;
}

}  // namespace

std::string append_pointer(std::string_view where, std::string_view token) {
  std::string out(where);
  out += '/';
  for (const char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else if (is_unreserved(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  return out;
}

JsonPointer JsonPointer::at(std::string_view key) const {
  return JsonPointer(std::make_shared<const Step>(Step{last_, std::string(key)}));
}

std::string JsonPointer::text() const {
  std::vector<const Step*> steps;
  for (const Step* step = last_.get(); step != nullptr; step = step->before.get())
    steps.push_back(step);
  std::string out = "#";
  for (size_t i = steps.size(); i-- > 0;) {
    out = append_pointer(out, std::string_view(steps[i]->key).substr(0, kMaxText));
    if (out.size() > kMaxText) out.replace(kMaxText / 2, out.size() - kMaxText, "…");
  }
  return out;
}

}  // namespace penstock::grammar
