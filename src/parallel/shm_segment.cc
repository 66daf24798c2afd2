#include "parallel/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "parallel/communicator.h"

namespace penstock {
namespace {

constexpr uint64_t kMagic =
    std::bit_cast<uint64_t>(std::to_array({'P', 's', 't', 'k', 'r', 'n', 'k', '3'}));
constexpr size_t kMaxBufferBytes = size_t{1} << 30;
constexpr size_t kPage = 4096;
constexpr size_t kHeaderBytes = (sizeof(ShmHeader) + kPage - 1) / kPage * kPage;

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<double>::is_always_lock_free);

size_t segment_bytes(int n_ranks, size_t buffer_bytes) {
  return kHeaderBytes + (2 + kInboxBuffers) * static_cast<size_t>(n_ranks) * buffer_bytes;
}

// Allocates all pages now: a page that is unavailable later would raise SIGBUS.
Status fill(int fd, int n_ranks, size_t buffer_bytes) {
  const size_t bytes = segment_bytes(n_ranks, buffer_bytes);
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    return errorf(ErrorCode::kResourceExhausted, "{} MiB that {} ranks share cannot be had: {}",
                  bytes >> 20, n_ranks, std::strerror(error));
  }
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  void* memory = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return errorf(ErrorCode::kIo, "memory that ranks share: mmap: {}", std::strerror(errno));
  auto* header = new (memory) ShmHeader{};
  header->n_ranks = static_cast<uint32_t>(n_ranks);
  header->buffer_bytes = buffer_bytes;
  header->magic = kMagic;
  munmap(memory, kHeaderBytes);
  return {};
}

}  // namespace

Result<int> make_shm_segment(int n_ranks, size_t buffer_bytes) {
  if (n_ranks < 1 || n_ranks > kMaxRanks) {
    return errorf(ErrorCode::kInvalidArgument, "ranks on one host: expected 1 to {}, got {}",
                  kMaxRanks, n_ranks);
  }
  if (buffer_bytes == 0 || buffer_bytes % kPage != 0 || buffer_bytes > kMaxBufferBytes) {
    return errorf(ErrorCode::kInvalidArgument,
                  "buffers of ranks: expected a multiple of {} up to {}, got {}", kPage,
                  kMaxBufferBytes, buffer_bytes);
  }
  const int fd = memfd_create("penstock ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return errorf(ErrorCode::kIo, "memory that ranks share: memfd_create: {}",
                  std::strerror(errno));
  if (const Status status = fill(fd, n_ranks, buffer_bytes); !status) {
    close(fd);
    return tl::unexpected(status.error());
  }
  return fd;
}

void ShmSegment::Unmap::operator()(void* memory) const { munmap(memory, bytes); }

Result<ShmSegment> ShmSegment::map(int fd) {
  const auto wrong = [&](std::string_view why) {
    return errorf(ErrorCode::kInvalidArgument,
                  "file descriptor {} is no memory that ranks share: {}", fd, why);
  };
  struct stat info = {};
  if (fstat(fd, &info) != 0) return wrong(std::strerror(errno));
  const auto bytes = static_cast<size_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || bytes < kHeaderBytes) return wrong("too small");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return wrong(std::strerror(errno));
  ShmSegment segment;
  segment.memory_ = {memory, Unmap{bytes}};
  const ShmHeader& header = segment.header();
  const bool sane = header.magic == kMagic && header.n_ranks >= 1 && header.n_ranks <= kMaxRanks &&
                    header.buffer_bytes <= kMaxBufferBytes &&
                    segment_bytes(static_cast<int>(header.n_ranks), header.buffer_bytes) == bytes;
  if (!sane) return wrong("another version's, or something else");
  segment.buffer_bytes_ = header.buffer_bytes;
  return segment;
}

std::byte* ShmSegment::buffer(int rank, uint32_t turn) const {
  return static_cast<std::byte*>(memory_.get()) + kHeaderBytes +
         (2 * static_cast<size_t>(rank) + turn % 2) * buffer_bytes_;
}

std::byte* ShmSegment::inbox(int rank) const {
  const size_t n_ranks = header().n_ranks;
  return static_cast<std::byte*>(memory_.get()) + kHeaderBytes +
         (2 * n_ranks + kInboxBuffers * static_cast<size_t>(rank)) * buffer_bytes_;
}

}  // namespace penstock
