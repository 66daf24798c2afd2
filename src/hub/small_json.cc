#include "hub/small_json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace penstock {
namespace {

constexpr int kMaxJsonDepth = 32;

// Reads up to size bytes; fewer at the end of the file.
Status read_all(int fd, std::string& text, const std::filesystem::path& path) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errorf(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return {};
}

}  // namespace

Result<std::string> read_small_file(const std::filesystem::path& path, size_t max_bytes) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
    return errorf(code, "{}: {}", path.string(), std::strerror(errno));
  }
  struct stat info = {};
  std::string text;
  Status status;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = errorf(ErrorCode::kIo, "{}: not a regular file", path.string());
  } else if (static_cast<size_t>(info.st_size) > max_bytes) {
    status = errorf(ErrorCode::kCorruptFile, "{}: expected at most {} bytes, got {}", path.string(),
                    max_bytes, info.st_size);
  } else {
    text.resize(static_cast<size_t>(info.st_size));
    status = read_all(fd, text, path);
  }
  ::close(fd);
  if (!status) return tl::unexpected(std::move(status).error());
  return text;
}

Result<nlohmann::json> parse_small_json(std::string_view text, std::string_view where) {
  auto value = read_bounded_json(text, ErrorCode::kCorruptFile, where, kMaxJsonDepth);
  if (value) return value;
  return errorf(ErrorCode::kCorruptFile, "{}{}", where,
                printable(std::string_view(value.error().message).substr(where.size())));
}

std::string json_string(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t json_integer(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return -1;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

std::string printable(std::string_view text, size_t max_chars) {
  std::string result;
  for (const char c : text.substr(0, max_chars)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() > max_chars) result += "...";
  return result;
}

}  // namespace penstock
