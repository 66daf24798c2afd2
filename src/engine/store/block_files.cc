#include "engine/store/block_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/regular_file.h"
#include "engine/store/block_image.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether a file in a folder of blocks has the name of a block: HASH.GROUP.
bool is_block_name(std::string_view name) {
  const size_t dot = name.find('.');
  return dot != std::string_view::npos && is_hex(name.substr(0, dot), 32) &&
         name.size() > dot + 1 && name.size() <= dot + 5 &&
         name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Nanoseconds since the last use, >= 0. Times in the future count as now, those before 1970 as 1970.
int64_t age_of(const timespec& used, int64_t now) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t seconds = std::clamp<int64_t>(used.tv_sec, 0, now / kSecond + 1);
  return std::max<int64_t>(0, now - seconds * kSecond - used.tv_nsec);
}

// Calls f for the paths in a folder, as far as they can be read.
void for_each_entry(const fs::path& folder, const std::function<void(const fs::path&)>& f) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) f(at->path());
}

// Ages in classes about 9 % apart, the youngest first, so that files are ordered in constant
// memory.
class AgeClasses {
 public:
  static size_t of(int64_t age_ns) {
    const auto age = static_cast<uint64_t>(age_ns) | 8;
    const int log = 63 - __builtin_clzll(age);
    return static_cast<size_t>(log) * 8 + ((age >> (log - 3)) & 7);
  }
  void add(const BlockFile& file) { bytes_[of(file.age_ns)] += file.bytes; }
  // Returns the oldest class of which something stays when the youngest files up to `bytes` do, and
  // sets `kept` to the bytes that stay of it.
  size_t oldest_kept(int64_t bytes, int64_t& kept) const {
    size_t i = 0;
    for (; i + 1 < bytes_.size() && bytes_[i] <= bytes; ++i) bytes -= bytes_[i];
    kept = bytes;
    return i;
  }

 private:
  std::array<int64_t, 64 * 8> bytes_{};
};

}  // namespace

// Whole pages, as most file systems allocate.
int64_t disk_bytes(int64_t size) {
  constexpr int64_t kPage = 4096;
  return (size + kPage - 1) / kPage * kPage;
}

void for_each_block_file(const fs::path& root, const std::function<void(const BlockFile&)>& f) {
  const int64_t now = now_ns();
  const auto visit = [&](const fs::path& file) {
    const std::string name = file.filename();
    struct stat info{};
    if (!is_block_name(name) && !name.ends_with(kUnfinishedBlock)) return;
    if (lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    f({file, disk_bytes(info.st_size), age_of(info.st_mtim, now)});
  };
  for_each_entry(root, [&](const fs::path& model) {
    if (!is_hex(model.filename().native(), 32)) return;
    for_each_entry(model, [&](const fs::path& part) {
      if (is_hex(part.filename().native(), 2)) for_each_entry(part, visit);
    });
  });
}

int64_t prune_block_files(const fs::path& root, int64_t most, int64_t target) {
  constexpr int64_t kAbandoned = 600'000'000'000;  // age of an unfinished file whose writer is gone
  AgeClasses classes;
  int64_t total = 0;
  for_each_block_file(root, [&](const BlockFile& file) {
    if (file.is_unfinished() && file.age_ns > kAbandoned) {
      unlink(file.path.c_str());
      return;
    }
    classes.add(file);
    total += file.bytes;
  });
  if (total <= most) return total;
  int64_t kept = 0;
  const size_t oldest = classes.oldest_kept(std::max<int64_t>(0, target), kept);
  for_each_block_file(root, [&](const BlockFile& file) {
    const size_t age = AgeClasses::of(file.age_ns);
    if (age < oldest) return;
    if (age == oldest && kept >= file.bytes) {
      kept -= file.bytes;
    } else if (unlink(file.path.c_str()) == 0) {
      total -= file.bytes;
    }
  });
  return total;
}

namespace {

Result<fs::path> root_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path / kBlockFolder, error)) return path / kBlockFolder;
  return errorf(ErrorCode::kNotFound, "{}: expected the folder of a --kv-store, with {} in it",
                path.string(), kBlockFolder);
}

// Returns the number of 16 hexadecimal digits.
uint64_t number_of(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

BlockHash hash_of(std::string_view digits) {
  return {.low = number_of(digits.substr(16, 16)), .high = number_of(digits.substr(0, 16))};
}

BlockFault fault_of(const BlockFile& file) {
  constexpr size_t kMostBytes = size_t{1} << 32;
  const std::string name = file.path.filename(), group = name.substr(name.find('.') + 1);
  const Result<std::string> bytes = read_regular_file(file.path, kMostBytes);
  if (!bytes)
    return {file.path, bytes.error().message, bytes.error().code == ErrorCode::kCorruptFile};
  return {file.path,
          BlockImages::fault_of(std::as_bytes(std::span(*bytes)), hash_of(file.model()),
                                {std::atoi(group.c_str()), hash_of(name)}),
          true};
}

}  // namespace

Result<std::map<std::string, StoredModel>> list_store(const fs::path& path) {
  ASSIGN_OR_RETURN(const fs::path root, root_of(path));
  std::map<std::string, StoredModel> models;
  for_each_block_file(root, [&](const BlockFile& file) {
    StoredModel& model = models[file.model()];
    model.n_blocks += !file.is_unfinished();
    model.bytes += file.bytes;
    model.youngest_ns = std::min(model.youngest_ns, file.age_ns);
    model.oldest_ns = std::max(model.oldest_ns, file.age_ns);
  });
  return models;
}

Result<StoreCheck> check_store(const fs::path& path,
                               const std::function<void(const BlockFault&)>& tell) {
  ASSIGN_OR_RETURN(const fs::path root, root_of(path));
  StoreCheck check;
  for_each_block_file(root, [&](const BlockFile& file) {
    if (file.is_unfinished()) return;
    const BlockFault fault = fault_of(file);
    std::error_code error;
    if (!fault.what.empty() && !fs::exists(file.path, error)) return;  // a server has removed it
    check.n_unread += !fault.was_read;
    check.n_blocks += fault.was_read;
    check.bytes += fault.was_read ? file.bytes : 0;
    if (fault.what.empty()) return;
    check.n_damaged += fault.was_read;
    tell(fault);
  });
  return check;
}

}  // namespace penstock
