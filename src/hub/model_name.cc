#include "hub/model_name.h"

#include <algorithm>

#include "base/ascii.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

constexpr size_t kMaxRepoPart = 96;
constexpr std::string_view kHub = "huggingface.co/", kShortHub = "hf.co/";
constexpr size_t kMaxPath = 1024, kMaxPathPart = 255;

bool is_word(char c) { return is_ascii_alnum(c) || c == '_'; }

bool is_repo_part(std::string_view part) {
  return !part.empty() && part.size() <= kMaxRepoPart && is_word(part.front()) &&
         is_word(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos &&
         std::ranges::all_of(part, [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

// Names are shown on terminals, some of which take U+0080 to U+009F for the beginning of a command.
bool has_control(std::string_view text) {
  unsigned char before = 0;
  for (const unsigned char c : text) {
    if (c < 0x20 || c == 0x7f || (before == 0xc2 && c >= 0x80 && c < 0xa0)) return true;
    before = c;
  }
  return false;
}

bool is_path_part(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPathPart && part != "." && part != ".." &&
         part.find('\\') == std::string_view::npos && !has_control(part);
}

bool is_relative_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath) return false;
  while (true) {
    const size_t slash = path.find('/');
    if (!is_path_part(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (prefix.empty() || !text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Removes a hub's address before the name. Returns whether there was one.
bool take_address(std::string_view& text, std::string_view endpoint) {
  if (!endpoint.empty() && text.starts_with(endpoint) &&
      text.substr(endpoint.size()).starts_with('/')) {
    text.remove_prefix(endpoint.size() + 1);
    return true;
  }
  if (take_prefix(text, "hf://")) {
    take_prefix(text, "models/");
    return true;
  }
  std::string_view rest = text;
  if (!take_prefix(rest, "https://")) take_prefix(rest, "http://");
  if (!take_prefix(rest, kHub) && !take_prefix(rest, kShortHub)) return false;
  text = rest;
  return true;
}

// Parses the rest of a web address of a file or folder: "/resolve/main/a.gguf", "/tree/main".
Status read_address_tail(std::string_view tail, ModelName& name, std::string_view text) {
  tail = tail.substr(0, tail.find_first_of("?#"));
  if (tail.empty() || tail == "/") return {};
  const bool known =
      take_prefix(tail, "/resolve/") || take_prefix(tail, "/blob/") || take_prefix(tail, "/tree/");
  const size_t slash = tail.find('/');
  if (known) {
    name.revision = tail.substr(0, slash);
    name.what = slash == std::string_view::npos ? std::string_view() : tail.substr(slash + 1);
  }
  if (known && is_revision(name.revision)) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "model {}: expected the address of a repository or of a file in it",
                printable(text));
}

// Parses what follows the repository: "", "@revision", ":what" or "@revision:what".
void read_suffix(std::string_view suffix, ModelName& name) {
  const size_t colon = suffix.find(':');
  if (suffix.starts_with('@'))
    name.revision = suffix.substr(1, colon == std::string_view::npos ? colon : colon - 1);
  if (colon != std::string_view::npos) name.what = suffix.substr(colon + 1);
}

Status check_name(const ModelName& name, std::string_view suffix, std::string_view text) {
  const bool bad_what = suffix.find(':') != std::string_view::npos && !is_relative_path(name.what);
  if (is_repo_name(name.repo) && (!suffix.starts_with('@') || is_revision(name.revision)) &&
      !bad_what)
    return {};
  return errorf(
      ErrorCode::kInvalidArgument,
      "model {}: expected a path, org/name, org/name:FILE or org/name:Q4_K_M (with @revision "
      "before the colon)",
      printable(text));
}

}  // namespace

std::string ModelName::text() const {
  // the name of an organisation looks like an address
  const bool like_address = repo.starts_with(kHub) || repo.starts_with(kShortHub);
  return (like_address ? std::string(kShortHub) : "") + repo +
         (revision.empty() ? "" : "@" + revision) + (what.empty() ? "" : ":" + what);
}

bool looks_like_path(std::string_view text) {
  if (text.empty() || text.starts_with('/') || text.starts_with('.') || text.starts_with('~'))
    return true;
  if (text.find("://") != std::string_view::npos || text.starts_with(kShortHub) ||
      text.starts_with(kHub))
    return false;
  if (text.find(':') != std::string_view::npos) return false;
  if (std::ranges::count(text, '/') > 1 || text.ends_with('/'))
    return text.find('@') == std::string_view::npos;
  return text.ends_with(".gguf") || text.ends_with(".safetensors") || text.ends_with(".bin");
}

Result<ModelName> parse_model_name(std::string_view text, std::string_view endpoint) {
  ModelName name;
  std::string_view rest = text;
  const bool address = take_address(rest, endpoint);
  const size_t end = rest.find_first_of("@:");
  const size_t slash = rest.find('/');
  const size_t second = slash == std::string_view::npos ? slash : rest.find('/', slash + 1);
  if (address && second != std::string_view::npos && second < end) {
    name.repo = rest.substr(0, second);
    RETURN_IF_ERROR(read_address_tail(rest.substr(second), name, text));
    if (!name.what.empty()) RETURN_IF_ERROR(check_name(name, ":", text));
  } else {
    const std::string_view suffix =
        end == std::string_view::npos ? std::string_view() : rest.substr(end);
    name.repo = rest.substr(0, end);
    read_suffix(suffix, name);
    RETURN_IF_ERROR(check_name(name, suffix, text));
  }
  RETURN_IF_ERROR(check_name(name, {}, text));
  return name;
}

bool is_repo_name(std::string_view repo) {
  const size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return is_repo_part(repo);
  return is_repo_part(repo.substr(0, slash)) && is_repo_part(repo.substr(slash + 1)) &&
         !repo.ends_with(".git");
}

bool is_revision(std::string_view text) {
  return is_relative_path(text) && text.find("..") == std::string_view::npos &&
         text.find(':') == std::string_view::npos && !text.ends_with(".lock") &&
         !text.ends_with(".tmp");
}

bool is_object_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' &&
         std::ranges::all_of(text, [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

Status check_repo_path(std::string_view path, std::string_view where) {
  if (is_relative_path(path)) return {};
  return errorf(ErrorCode::kCorruptFile,
                "{}: expected the name of a file inside of the repository, got \"{}\"", where,
                printable(path));
}

}  // namespace penstock
