#include "engine/files/swap_stores.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file_error.h"
#include "base/memory.h"
#include "engine/files/block_file.h"

namespace penstock {
namespace {

// Maps slots to byte offsets, group after group.
class Slots {
 public:
  explicit Slots(const SwapLayout& layout) : layout_(layout) {
    int64_t bytes = 0;
    int n_slots = 0;
    for (size_t g = 0; g < layout.n_slots.size(); ++g) {
      first_bytes_.push_back(bytes);
      first_slots_.push_back(n_slots);
      bytes += layout.n_slots[g] * layout.block_bytes[g];
      n_slots += layout.n_slots[g];
    }
  }
  int64_t offset(int group, int slot) const {
    return first_bytes_[group] + slot * layout_.block_bytes[group];
  }
  size_t index(int group, int slot) const { return first_slots_[group] + slot; }
  size_t count() const {
    size_t n = 0;
    for (const int slots : layout_.n_slots) n += slots;
    return n;
  }

 private:
  SwapLayout layout_;
  std::vector<int64_t> first_bytes_;
  std::vector<int> first_slots_;
};

class MemorySwap : public SwapStore {
 public:
  MemorySwap(const SwapLayout& layout, void* memory)
      : slots_(layout),
        memory_(static_cast<std::byte*>(memory)),
        bytes_(layout.bytes()),
        promised_(memory, static_cast<size_t>(bytes_)) {}
  ~MemorySwap() override {
    promised_ = {};
    munmap(memory_, static_cast<size_t>(bytes_));
  }

  Status write(int group, int slot, std::span<const std::byte> bytes) override {
    std::memcpy(memory_ + slots_.offset(group, slot), bytes.data(), bytes.size());
    return {};
  }
  Status read(int group, int slot, std::span<std::byte> bytes) override {
    std::memcpy(bytes.data(), memory_ + slots_.offset(group, slot), bytes.size());
    return {};
  }

 private:
  Slots slots_;
  std::byte* memory_;
  int64_t bytes_;
  PromisedMemory promised_;
};

class FileSwap : public SwapStore {
 public:
  FileSwap(const SwapLayout& layout, int file)
      : slots_(layout), checksums_(slots_.count()), file_(file) {}
  ~FileSwap() override { close(file_); }

  Status write(int group, int slot, std::span<const std::byte> bytes) override {
    checksums_[slots_.index(group, slot)] = checksum(bytes, kSeed);
    int64_t offset = slots_.offset(group, slot);
    while (!bytes.empty()) {
      const ssize_t n = pwrite(file_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failed("written to", n < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += n;
    }
    return {};
  }
  Status read(int group, int slot, std::span<std::byte> bytes) override {
    int64_t offset = slots_.offset(group, slot);
    for (std::span<std::byte> rest = bytes; !rest.empty();) {
      const ssize_t n = pread(file_, rest.data(), rest.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failed("read from", n < 0 ? errno : EIO);
      rest = rest.subspan(static_cast<size_t>(n));
      offset += n;
    }
    if (checksum(bytes, kSeed) != checksums_[slots_.index(group, slot)])
      return errorf(ErrorCode::kCorruptFile, "the swap file does not hold what was written to it");
    return {};
  }

 private:
  static constexpr uint64_t kSeed = 0x5357415053574150ull;
  static tl::unexpected<Error> failed(const char* what, int code) {
    return errorf(file_error(code), "the swap file cannot be {}: {}", what, std::strerror(code));
  }

  Slots slots_;
  std::vector<uint64_t> checksums_;
  int file_;
};

}  // namespace

int64_t SwapLayout::bytes() const {
  int64_t bytes = 0;
  for (size_t g = 0; g < n_slots.size(); ++g) bytes += n_slots[g] * block_bytes[g];
  return bytes;
}

SwapLayout swap_layout(int64_t bytes, std::span<const int64_t> block_bytes,
                       std::span<const int> n_blocks) {
  double total = 0;
  for (size_t g = 0; g < n_blocks.size(); ++g)
    total += static_cast<double>(block_bytes[g]) * static_cast<double>(n_blocks[g]);
  SwapLayout layout;
  layout.block_bytes.assign(block_bytes.begin(), block_bytes.end());
  for (const int n : n_blocks) {
    const double slots =
        total > 0 ? static_cast<double>(n) * static_cast<double>(bytes) / total : 0;
    layout.n_slots.push_back(static_cast<int>(std::min(slots, 1e9)));
  }
  return layout;
}

Result<std::unique_ptr<SwapStore>> make_memory_swap(const SwapLayout& layout) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(layout.bytes(), 1));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return errorf(ErrorCode::kResourceExhausted, "swap_space: {} bytes of memory cannot be had: {}",
                  bytes, std::strerror(errno));
  }
  return std::make_unique<MemorySwap>(layout, memory);
}

Result<std::unique_ptr<SwapStore>> make_file_swap(const SwapLayout& layout,
                                                  const std::filesystem::path& folder) {
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) {  // fallback for file systems without O_TMPFILE
    std::string name = (folder / "penstock-swap-XXXXXX").string();
    file = mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) unlink(name.c_str());
  }
  if (file < 0) {
    return errorf(ErrorCode::kIo, "swap_dir {}: no file can be made there: {}", folder.string(),
                  std::strerror(errno));
  }
  return std::make_unique<FileSwap>(layout, file);
}

}  // namespace penstock
