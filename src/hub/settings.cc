#include "hub/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/regular_file.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxSettingsBytes = size_t{1} << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool is_true(const char* name) {
  std::string value = variable(name);
  std::ranges::transform(value, value.begin(), [](char c) { return ascii_upper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path home() {
  if (const std::string value = variable("HOME"); !value.empty()) return value;
  const passwd* user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "/";
}

// Expands $NAME and ${NAME}, and a leading ~ to the home folder; unknown names are
// kept.
fs::path expand(std::string text) {
  if (text == "~" || text.starts_with("~/")) text = home().string() + text.substr(1);
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const bool braces = text.compare(i, 2, "${") == 0;
    const size_t begin = i + (braces ? 2 : 1);
    size_t end = begin;
    while (text[i] == '$' && end < text.size() && (is_ascii_alnum(text[end]) || text[end] == '_'))
      ++end;
    const bool closed = !braces || (end < text.size() && text[end] == '}');
    const char* value =
        end > begin && closed ? std::getenv(text.substr(begin, end - begin).c_str()) : nullptr;
    if (value == nullptr) {
      result += text[i++];
    } else {
      result += value;
      i = end + (braces ? 1 : 0);
    }
  }
  return result;
}

fs::path folder(const char* name, const fs::path& otherwise) {
  const std::string value = variable(name);
  return value.empty() ? otherwise : expand(value);
}

Result<std::string> endpoint_of(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  if (text.empty()) return HubSettings().endpoint;
  const size_t scheme = text.starts_with("https://") ? 8 : text.starts_with("http://") ? 7 : 0;
  const bool clean =
      std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (scheme == 0 || text.size() == scheme || !clean ||
      text.find_first_of("?#") != std::string::npos) {
    return errorf(ErrorCode::kInvalidArgument,
                  "HF_ENDPOINT: expected an address such as https://host, got {}", printable(text));
  }
  return text;
}

// Removes line breaks and surrounding blanks, since a token becomes part of a header.
Result<std::string> clean_token(std::string token, std::string_view where) {
  std::erase_if(token, [](char c) { return c == '\r' || c == '\n'; });
  const size_t begin = token.find_first_not_of(" \t");
  if (begin == std::string::npos) return std::string();
  token = token.substr(begin, token.find_last_not_of(" \t") + 1 - begin);
  if (!std::ranges::all_of(token, [](unsigned char c) { return c > 0x20 && c < 0x7f; })) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a token of visible ASCII characters, got others", where);
  }
  return token;
}

Result<std::string> find_token(const fs::path& hf_home) {
  if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return std::string();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    ASSIGN_OR_RETURN(std::string token, clean_token(variable(name), name));
    if (!token.empty()) return token;
  }
  const fs::path file = folder("HF_TOKEN_PATH", hf_home / "token");
  auto content = read_regular_file(file, kMaxTokenBytes);
  if (!content) return std::string();
  return clean_token(std::move(*content), file.string());
}

// Returns LM Studio's models folders: a file in the home folder names LM Studio's folder, whose
// settings may move the models.
std::vector<fs::path> lm_studio_folders() {
  std::vector<fs::path> homes = {home() / ".lmstudio", home() / ".cache" / "lm-studio"};
  if (auto pointer = read_regular_file(home() / ".lmstudio-home-pointer", kMaxTokenBytes);
      pointer) {
    const std::string line = pointer->substr(0, pointer->find_first_of("\r\n"));
    const size_t end = line.find_last_not_of(" \t");
    if (end != std::string::npos) homes.insert(homes.begin(), line.substr(0, end + 1));
  }
  std::vector<fs::path> folders;
  for (const fs::path& place : homes) {
    fs::path models = place / "models";
    if (auto text = read_regular_file(place / "settings.json", kMaxSettingsBytes); text) {
      const auto settings = parse_small_json(*text, "settings.json");
      const std::string moved =
          settings ? json_string(*settings, "downloadsFolder") : std::string();
      if (!moved.empty()) models = moved;
    }
    if (std::ranges::find(folders, models) == folders.end()) folders.push_back(std::move(models));
  }
  return folders;
}

std::vector<fs::path> ollama_folders() {
  if (const std::string value = variable("OLLAMA_MODELS"); !value.empty()) return {expand(value)};
  // The second folder is that of the service that Ollama's installer sets up on Linux.
  return {home() / ".ollama" / "models", "/usr/share/ollama/.ollama/models"};
}

Status read_seconds(const char* name, std::chrono::seconds& seconds) {
  const std::string text = variable(name);
  if (text.empty()) return {};
  const bool digits = text.size() < 7 && std::ranges::all_of(text, is_ascii_digit);
  if (!digits || std::stoi(text) == 0) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected seconds, 1 to 999999, got {}", name,
                  printable(text));
  }
  seconds = std::chrono::seconds(std::stoi(text));
  return {};
}

}  // namespace

Result<HubSettings> hub_settings() {
  HubSettings settings;
  ASSIGN_OR_RETURN(settings.endpoint, endpoint_of(variable("HF_ENDPOINT")));
  const fs::path caches = folder("XDG_CACHE_HOME", home() / ".cache");
  const fs::path hf_home = folder("HF_HOME", caches / "huggingface");
  settings.cache = folder("HF_HUB_CACHE", folder("HUGGINGFACE_HUB_CACHE", hf_home / "hub"));
  if (const std::string value = variable("LLAMA_CACHE"); !value.empty())
    settings.more_caches = {expand(value)};
  settings.lm_studio = lm_studio_folders();
  settings.ollama = ollama_folders();
  settings.offline = is_true("HF_HUB_OFFLINE") ||
                     (variable("HF_HUB_OFFLINE").empty() && is_true("TRANSFORMERS_OFFLINE"));
  settings.symlinks = !is_true("HF_HUB_DISABLE_SYMLINKS");
  for (const char* name : {"REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    if (const std::string value = variable(name); !value.empty()) settings.certificates = value;
  }
  // The library that reads the file would block on a special file.
  if (const Status file = check_regular_file(settings.certificates);
      !settings.certificates.empty() && !file && file.error().code != ErrorCode::kNotFound)
    return tl::unexpected(file.error());
  ASSIGN_OR_RETURN(settings.token, find_token(hf_home));
  RETURN_IF_ERROR(read_seconds("HF_HUB_ETAG_TIMEOUT", settings.metadata_timeout));
  RETURN_IF_ERROR(read_seconds("HF_HUB_DOWNLOAD_TIMEOUT", settings.transfer_timeout));
  return settings;
}

}  // namespace penstock
