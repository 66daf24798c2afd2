#include "server/http/multipart.h"

#include <algorithm>

#include "base/ascii.h"

namespace penstock {
namespace {

constexpr size_t kMostParts = 32, kLongestHead = 4096, kLongestBoundary = 70;  // the last: RFC 2046

bool starts_with_name(std::string_view text, std::string_view name) {
  return text.size() >= name.size() &&
         std::equal(name.begin(), name.end(), text.begin(),
                    [](char a, char b) { return a == ascii_lower(b); });
}

// Finds a header parameter, `; name="value"` or `; name=value`; false: absent.
bool find_parameter(std::string_view header, std::string_view name, std::string& value) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    at = header.find_first_not_of(" \t;", at);
    if (at == std::string_view::npos) return false;
    const size_t equals = header.find('=', at);
    if (equals == std::string_view::npos) return false;
    const bool wanted = equals - at == name.size() && starts_with_name(header.substr(at), name);
    std::string found;
    at = equals + 1;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        found += header[at];
      }
      at = header.find(';', at);
    } else {
      const size_t end = std::min(header.find(';', at), header.size());
      found = header.substr(at, end - at);
      while (found.ends_with(' ')) found.pop_back();
      at = end < header.size() ? end : std::string_view::npos;
    }
    if (!wanted) continue;
    value = std::move(found);
    return true;
  }
  return false;
}

tl::unexpected<Error> wrong_form(std::string_view what) {
  return errorf(ErrorCode::kInvalidArgument, "body: multipart/form-data: {}", what);
}

// Parses the head of a part: the lines before the empty one.
Result<FormPart> read_part(std::string_view head) {
  FormPart part;
  bool named = false;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    if (!starts_with_name(line, "content-disposition:")) continue;
    named = find_parameter(line, "name", part.name);
    part.is_file = find_parameter(line, "filename", part.filename);
  }
  if (!named) return wrong_form("a part without a name");
  return part;
}

}  // namespace

Result<std::vector<FormPart>> read_form(std::string_view content_type, std::string_view body) {
  std::string boundary;
  if (!starts_with_name(content_type, "multipart/form-data")) {
    return errorf(ErrorCode::kInvalidArgument, "body: expected multipart/form-data, got {}",
                  content_type.empty() ? "no content type" : content_type.substr(0, 100));
  }
  if (!find_parameter(content_type, "boundary", boundary) || boundary.empty() ||
      boundary.size() > kLongestBoundary) {
    return wrong_form("expected a boundary of 1 to 70 characters");
  }
  const std::string first = "--" + boundary, next = "\r\n" + first;
  // Text before the first boundary is ignored.
  size_t at = body.starts_with(first) ? first.size() : body.find(next);
  if (at == std::string_view::npos) return wrong_form("the boundary does not occur");
  if (!body.starts_with(first)) at += next.size();
  std::vector<FormPart> parts;
  while (body.substr(at, 2) != "--") {
    if (parts.size() == kMostParts) return wrong_form("more than 32 parts");
    const size_t head = body.find("\r\n", at);
    if (head == std::string_view::npos) return wrong_form("it ends in a boundary's line");
    const size_t head_end = body.substr(head, kLongestHead).find("\r\n\r\n");
    if (head_end == std::string_view::npos) return wrong_form("a part's head does not end");
    ASSIGN_OR_RETURN(FormPart part,
                     read_part(body.substr(head + 2, head_end > 2 ? head_end - 2 : 0)));
    const size_t content = head + head_end + 4;
    const size_t end = body.find(next, content);
    if (end == std::string_view::npos)
      return wrong_form("a part does not end: the last boundary is missing");
    part.content = body.substr(content, end - content);
    parts.push_back(std::move(part));
    at = end + next.size();
  }
  return parts;
}

}  // namespace penstock
