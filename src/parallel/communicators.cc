// THE list of communicators. A new one is a file that implements Communicator, its function and its
// row.
#include "parallel/communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/memory.h"

namespace penstock {

using MakeCommunicator = Result<std::unique_ptr<Communicator>>(const CommunicatorConfig& config);
MakeCommunicator make_self_communicator;
MakeCommunicator make_shm_communicator;
MakeCommunicator make_mpi_communicator;

namespace {

struct CommunicatorRow {
  std::string_view name;
  MakeCommunicator* make;
};

constexpr CommunicatorRow kCommunicators[] = {
    {"self", make_self_communicator},  // one rank
    {"shm", make_shm_communicator},    // ranks on one host
    {"mpi", make_mpi_communicator},    // ranks on several hosts, started by mpirun or srun
};

}  // namespace

std::string communicator_names() {
  std::string names;
  for (const CommunicatorRow& row : kCommunicators)
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<std::unique_ptr<Communicator>> make_communicator(std::string_view name,
                                                        const CommunicatorConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    return errorf(ErrorCode::kInvalidArgument, "rank {} of {}: expected a rank from 0 to {}",
                  config.rank, config.size, config.size - 1);
  }
  for (const CommunicatorRow& row : kCommunicators)
    if (row.name == name) return row.make(config);
  return errorf(ErrorCode::kInvalidArgument, "communicator '{}' does not exist: expected one of {}",
                name, communicator_names());
}

namespace {

// Calls copy(floats in the rows, floats in the copy, count) for each row of the range.
template <class Copy>
void for_rows(const PartRows& rows, size_t begin, size_t n, const Copy& copy) {
  for (size_t done = 0; done < n;) {
    const size_t column = (begin + done) % rows.width, row = (begin + done) / rows.width;
    const size_t count = std::min(rows.width - column, n - done);
    copy(rows.first + row * rows.stride + column, done, count);
    done += count;
  }
}

}  // namespace

void PartRows::read(size_t begin, std::span<float> out) const {
  for_rows(*this, begin, out.size(), [&](const float* row, size_t at, size_t count) {
    std::copy_n(row, count, out.data() + at);
  });
}

void PartRows::write(size_t begin, std::span<const float> from) const {
  for_rows(*this, begin, from.size(),
           [&](float* row, size_t at, size_t count) { std::copy_n(from.data() + at, count, row); });
}

CommunicatorUse Communicator::use() const { return {calls_, bytes_, seconds_, resident_memory()}; }

// Counters are written by one thread.
template <class Operation>
Status Communicator::counted(size_t bytes, const Operation& operation) {
  if (!counts_) return operation();
  const auto begin = std::chrono::steady_clock::now();
  Status status = operation();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  constexpr auto kAnyOrder = std::memory_order_relaxed;
  calls_.store(calls_.load(kAnyOrder) + 1, kAnyOrder);
  bytes_.store(bytes_.load(kAnyOrder) + static_cast<int64_t>(bytes), kAnyOrder);
  seconds_.store(seconds_.load(kAnyOrder) + taken.count(), kAnyOrder);
  return status;
}

namespace {
constexpr size_t kMostOfSum = std::numeric_limits<int>::max();  // counts of numbers are int
}

Status Communicator::all_reduce(std::span<float> x, WireType wire) {
  PENSTOCK_CHECK(x.size() <= kMostOfSum);
  return counted(x.size() * wire_bytes(wire), [&] { return sum(x, wire); });
}

Status Communicator::reduce_scatter(std::span<float> x, WireType wire) {
  PENSTOCK_CHECK(x.size() <= kMostOfSum);
  return counted(x.size() * wire_bytes(wire), [&] { return sum_part(x, wire); });
}

Status Communicator::all_gather(std::span<const PartRows> parts) {
  const size_t n_own = parts[static_cast<size_t>(shard().rank)].size();
  return counted(n_own * sizeof(float), [&] { return gather(parts); });
}

Status Communicator::broadcast(std::span<std::byte> x, int root) {
  return counted(shard().rank == root ? x.size() : 0, [&] { return send(x, root); });
}

Status Communicator::barrier() {
  return counted(0, [&] { return meet(); });
}

Status Communicator::form_groups(int group_size) {
  PENSTOCK_CHECK(group_size_ == 0 && group_size >= 1 && size() % group_size == 0);
  RETURN_IF_ERROR(split(group_size));
  group_size_ = group_size;
  return {};
}

Status Communicator::send_to(std::span<const std::byte> message, int to) {
  PENSTOCK_CHECK(to >= 0 && to < size() && to != rank());
  return counted(message.size(), [&] { return post(message, to); });
}

Status Communicator::receive_from(int from, std::vector<std::byte>& message) {
  PENSTOCK_CHECK(from >= 0 && from < size() && from != rank());
  return counted(0, [&] { return take(from, message); });
}

// A short message is sent together with its length, in one broadcast.
Status broadcast_message(Communicator& ranks, std::vector<std::byte>& message, int root) {
  constexpr size_t kFirst = 2048;
  std::byte first[kFirst] = {};
  uint64_t size = message.size();
  constexpr size_t kWithSize = kFirst - sizeof size;
  std::memcpy(first, &size, sizeof size);
  if (ranks.shard().rank == root)
    std::copy_n(message.begin(), std::min<size_t>(size, kWithSize), first + sizeof size);
  RETURN_IF_ERROR(ranks.broadcast(first, root));
  std::memcpy(&size, first, sizeof size);
  if (ranks.shard().rank != root) {
    message.resize(size);
    std::copy_n(first + sizeof size, std::min<size_t>(size, kWithSize), message.begin());
  }
  return size > kWithSize ? ranks.broadcast(std::span(message).subspan(kWithSize), root) : Status();
}

}  // namespace penstock
