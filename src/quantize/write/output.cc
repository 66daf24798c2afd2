#include "quantize/write/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/file_error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char *kPartial = ".partial", *kUnfinished = ".unfinished";
// The first line of a list: whether the run made the directory.
constexpr std::string_view kMade = "penstock: made this directory, and in it",
                           kFound = "penstock: made in this directory";

fs::path with_end(fs::path path, const char* end) { return path += end; }

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Whether the file is somewhere below the directory, by its real place or by that of a symbolic link to it. A
// place that cannot be found out counts as below.
bool is_below(const fs::path& file, const fs::path& directory) {
  std::error_code unknown;
  const fs::path outer = fs::weakly_canonical(directory, unknown);
  if (unknown) return true;
  const auto holds = [&](const fs::path& inner) {
    return std::ranges::mismatch(outer, inner).in1 == outer.end();
  };
  const fs::path target = fs::weakly_canonical(file, unknown);
  if (unknown || holds(target)) return true;
  const fs::path name = without_slash(fs::absolute(file, unknown));
  if (unknown) return true;
  const fs::path link = fs::weakly_canonical(name.parent_path(), unknown) / name.filename();
  return unknown || holds(link);
}

Status check_inputs(const fs::path& out, const WeightSource* source,
                    std::span<const fs::path> also_read) {
  std::vector<fs::path> inputs(also_read.begin(), also_read.end());
  if (source != nullptr) {
    inputs.push_back(source->path());
    for (const SourceFile& file : source->files()) inputs.push_back(file.path);
  }
  for (const fs::path& input : inputs) {
    if (input.empty()) continue;
    if (is_same(input, out))
      return errorf(ErrorCode::kInvalidArgument, "{}: the output is the input{}", out.string(),
                    source != nullptr && input != source->path() ? " " + input.string() : "");
    if (is_below(input, out))
      return errorf(ErrorCode::kInvalidArgument, "{}: the input {} is in the output", out.string(),
                    input.string());
  }
  return {};
}

tl::unexpected<Error> not_replaced(const fs::path& out, const std::string& what) {
  return errorf(ErrorCode::kInvalidArgument, "{}: not replaced: {}", out.string(), what);
}

Status check_earlier_file(const fs::path& out) {
  std::error_code error;
  if (!fs::is_regular_file(out, error)) return not_replaced(out, "expected a GGUF file there");
  if (begins_with(out, "GGUF")) return {};
  return not_replaced(out, "expected a GGUF file there, got another one");
}

Status check_earlier_directory(const fs::path& out) {
  std::error_code error;
  if (!fs::is_directory(out, error)) return not_replaced(out, "expected a directory there");
  bool has_config = false, has_weights = false;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    has_config |= name == "config.json";
    has_weights |= name == "model.safetensors" || name == "model.safetensors.index.json";
    std::error_code ignored;
    if (!entry->is_regular_file(ignored))
      return not_replaced(out, "it has " + name + ", which is no file of a checkpoint");
  }
  if (error) return errorf(ErrorCode::kIo, "{}: {}", out.string(), error.message());
  if (has_config && has_weights) return {};
  return not_replaced(
      out, "expected a checkpoint's directory there, with a config.json and model.safetensors");
}

}  // namespace

fs::path without_slash(const fs::path& path) {
  fs::path clean = path.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  if (clean.filename() != "." && clean.filename() != "..") return clean;
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(clean, error);
  return error ? clean : whole;
}

Status check_no_input(const fs::path& out, const WeightSource* source,
                      std::span<const fs::path> also_read) {
  for (const char* end : {"", kPartial, ".parts", kUnfinished})
    RETURN_IF_ERROR(check_inputs(with_end(out, end), source, also_read));
  return {};
}

Status check_output(const OutputPlace& out, const WeightSource* source,
                    std::span<const fs::path> also_read) {
  RETURN_IF_ERROR(check_no_input(out.path, source, also_read));
  if (out.is_directory) RETURN_IF_ERROR(remove_unfinished(out.path));
  std::error_code error;
  if (!fs::exists(out.path, error)) return {};
  if (out.is_directory && fs::is_directory(out.path, error) && fs::is_empty(out.path, error))
    return {};
  if (!out.replace)
    return errorf(ErrorCode::kInvalidArgument, "{}: exists already (--force replaces it)",
                  out.path.string());
  return out.is_directory ? check_earlier_directory(out.path) : check_earlier_file(out.path);
}

Status write_file(const fs::path& path, std::span<const std::byte> bytes) {
  const fs::path partial = with_end(path, kPartial);
  ASSIGN_OR_RETURN(FileDescriptor fresh, create_fresh_file(partial));
  const int fd = fresh.release();
  bool ok = true;
  for (size_t at = 0; ok && at < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    ok = n > 0;
    if (ok) at += static_cast<size_t>(n);
  }
  int error = ok ? 0 : errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(partial.c_str());
  return errorf(file_error(error), "{}: write: {}", path.string(), std::strerror(error));
}

Status write_file(const fs::path& path, const std::string& text) {
  return write_file(path, std::as_bytes(std::span(text)));
}

namespace {

constexpr std::string_view kEnd("\0", 1);  // of a name, which cannot have it

tl::unexpected<Error> disk_error(const fs::path& path, int error) {
  return errorf(file_error(error), "{}: {}", path.string(), std::strerror(error));
}

tl::unexpected<Error> no_list(const fs::path& list) {
  return errorf(ErrorCode::kInvalidArgument,
                "{}: expected the names of files that an earlier run wrote, got another file",
                list.string());
}

Status write_all(int fd, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return disk_error(path, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status append(const fs::path& list, std::string name) {
  const FileDescriptor file(::open(list.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (file.number() < 0) return disk_error(list, errno);
  return write_all(file.number(), list, name += kEnd);
}

// Returns the text of a list; "": there is none. Refused is what is no regular file of this user: others do
// not say what is removed.
Result<std::string> read_list(const fs::path& list) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  struct stat info{};
  if (::lstat(list.c_str(), &info) != 0) {
    if (errno == ENOENT) return std::string();
    return disk_error(list, errno);
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return no_list(list);
  ASSIGN_OR_RETURN(std::string text, read_regular_file(list, kMostBytes));
  // A run may have been stopped in the first line.
  const auto begins = [&](std::string_view line) {
    return text.starts_with(std::string(line) + std::string(kEnd)) || line.starts_with(text);
  };
  if (!begins(kMade) && !begins(kFound)) return no_list(list);
  return text;
}

// A run holds its list's lock while it lives.
Status lock_list(const FileDescriptor& list, const fs::path& out) {
  if (::flock(list.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}: expected a directory of this run, got one that "
                "another run is writing",
                out.string());
}

Status remove_if_regular(const fs::path& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? Status() : disk_error(path, errno);
}

std::vector<std::string_view> names_in(std::string_view text) {
  std::vector<std::string_view> names;
  for (size_t end = text.find(kEnd); end != text.npos; end = text.find(kEnd)) {
    names.push_back(text.substr(0, end));
    text.remove_prefix(end + kEnd.size());
  }
  return names;  // a name that was cut off names a file that is not there
}

}  // namespace

Result<UnfinishedDirectory> UnfinishedDirectory::begin(const fs::path& out) {
  UnfinishedDirectory directory;
  directory.out_ = out;
  directory.list_ = with_end(out, kUnfinished);
  std::error_code error;
  const bool is_new = !fs::exists(out, error);
  ASSIGN_OR_RETURN(directory.lock_, create_fresh_file(directory.list_));
  RETURN_IF_ERROR(lock_list(directory.lock_, out));
  RETURN_IF_ERROR(write_all(directory.lock_.number(), directory.list_, is_new ? kMade : kFound));
  RETURN_IF_ERROR(write_all(directory.lock_.number(), directory.list_, kEnd));
  fs::create_directories(out, error);
  if (error) return disk_error(out, error.value());
  std::vector<fs::path> earlier;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end;
       entry.increment(error))
    earlier.push_back(entry->path());
  if (error) return disk_error(out, error.value());
  for (const fs::path& file : earlier) {
    RETURN_IF_ERROR(directory.place(file.filename().string()));
    fs::remove(file, error);
    if (error) return disk_error(file, error.value());
  }
  return directory;
}

Result<fs::path> UnfinishedDirectory::place(const std::string& name) {
  RETURN_IF_ERROR(append(list_, name));
  return out_ / name;
}

Status UnfinishedDirectory::write(const std::string& name, const std::string& text) {
  ASSIGN_OR_RETURN(const fs::path path, place(name));
  return write_file(path, text);
}

Status UnfinishedDirectory::finish() const { return remove_if_regular(list_); }

Status remove_unfinished(const fs::path& out) {
  const fs::path list = with_end(out, kUnfinished);
  ASSIGN_OR_RETURN(const std::string text, read_list(list));
  const auto lock = open_regular_file(list);
  if (lock) RETURN_IF_ERROR(lock_list(*lock, out));
  const std::vector<std::string_view> names = names_in(text);
  for (size_t i = 1; i < names.size(); ++i) {
    const fs::path name(names[i]);
    if (name.empty() || name != name.filename()) continue;
    RETURN_IF_ERROR(remove_if_regular(out / name));
    RETURN_IF_ERROR(remove_if_regular(with_end(out / name, kPartial)));
  }
  if (!names.empty() && names[0] == kMade)
    ::rmdir(out.c_str());  // fails if something else is in it
  return remove_if_regular(list);
}

}  // namespace penstock
