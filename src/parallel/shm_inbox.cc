#include "parallel/shm_inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/futex.h"

namespace penstock {

bool ShmInboxes::write(int to, std::span<const std::byte> message, size_t& done) {
  InboxState& box = state(to);
  uint32_t nobody = 0;
  if (!box.writer.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1)) return false;
  const uint64_t at = box.written.load(std::memory_order_relaxed);
  const size_t size = segment_.inbox_bytes();
  const size_t room = size - static_cast<size_t>(at - box.read.load(std::memory_order_acquire));
  const size_t left = message.size() - done;
  // Avoids tiny records: writes the rest, or at least a quarter of the ring.
  const bool writes = room >= std::min(sizeof(Record) + padded(left), size / 4);
  if (writes) {
    const size_t n = std::min(left, room - sizeof(Record));
    const Record record{message.size(), static_cast<uint32_t>(rank_), static_cast<uint32_t>(n)};
    put(to, at, std::as_bytes(std::span(&record, 1)));
    put(to, at + sizeof record, message.subspan(done, n));
    box.written.store(at + sizeof record + padded(n), std::memory_order_release);
    done += n;
  }
  box.writer.store(0, std::memory_order_release);
  if (!writes) return false;
  ++box.bell;  // before the check whether the owner sleeps
  if (box.asleep.load() != 0) futex_wake(box.bell);
  return true;
}

void ShmInboxes::drain() {
  InboxState& box = state(rank_);
  uint64_t at = box.read.load(std::memory_order_relaxed);
  while (at != box.written.load(std::memory_order_acquire)) {
    Record record;
    get(at, std::as_writable_bytes(std::span(&record, 1)));
    Source& source = sources_[record.from];
    const size_t before = source.begun.size();
    if (before == 0) source.begun.reserve(record.total);
    source.begun.resize(before + record.size);
    get(at + sizeof record, std::span(source.begun).subspan(before));
    at += sizeof record + padded(record.size);
    box.read.store(at, std::memory_order_release);
    if (source.begun.size() == record.total)
      source.messages.push_back(std::exchange(source.begun, std::vector<std::byte>()));
  }
}

bool ShmInboxes::pop(int from, std::vector<std::byte>& message) {
  drain();
  auto& messages = sources_[static_cast<size_t>(from)].messages;
  if (messages.empty()) return false;
  message = std::move(messages.front());
  messages.pop_front();
  return true;
}

void ShmInboxes::sleep(std::chrono::milliseconds at_most) {
  InboxState& box = state(rank_);
  const uint32_t seen = box.bell.load();
  box.asleep = 1;
  if (box.read.load() == box.written.load()) futex_wait(box.bell, seen, at_most);
  box.asleep = 0;
}

void ShmInboxes::put(int to, uint64_t at, std::span<const std::byte> bytes) const {
  const size_t size = segment_.inbox_bytes(), first = static_cast<size_t>(at % size);
  const size_t n = std::min(bytes.size(), size - first);
  std::byte* const ring = segment_.inbox(to);
  if (n > 0) std::memcpy(ring + first, bytes.data(), n);
  if (n < bytes.size()) std::memcpy(ring, bytes.data() + n, bytes.size() - n);
}

void ShmInboxes::get(uint64_t at, std::span<std::byte> bytes) const {
  const size_t size = segment_.inbox_bytes(), first = static_cast<size_t>(at % size);
  const size_t n = std::min(bytes.size(), size - first);
  const std::byte* const ring = segment_.inbox(rank_);
  if (n > 0) std::memcpy(bytes.data(), ring + first, n);
  if (n < bytes.size()) std::memcpy(bytes.data() + n, ring, bytes.size() - n);
}

}  // namespace penstock
