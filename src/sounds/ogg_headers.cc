#include "sounds/ogg_headers.h"

#include <algorithm>
#include <boost/crc.hpp>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace penstock {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kPageHead = 27;  // bytes before the segments' sizes
enum PageFlags : unsigned { kContinued = 1, kFirst = 2 };

unsigned byte_at(Bytes bytes, size_t at) { return std::to_integer<unsigned>(bytes[at]); }

uint32_t number_at(Bytes bytes, size_t at) {
  return byte_at(bytes, at) | byte_at(bytes, at + 1) << 8 | byte_at(bytes, at + 2) << 16 |
         byte_at(bytes, at + 3) << 24;
}

bool begins(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

struct Page {
  unsigned flags = 0;
  uint32_t stream = 0, number = 0;
  Bytes sizes, body;  // bytes of each segment, and all segments
};

// Takes a page off the front of the file. Returns false if there is none that is whole.
bool take_page(Bytes& file, Page& page) {
  if (file.size() < kPageHead || !begins(file, "OggS") || byte_at(file, 4) != 0) return false;
  const size_t n_segments = byte_at(file, 26);
  if (file.size() < kPageHead + n_segments) return false;
  page.flags = byte_at(file, 5);
  page.stream = number_at(file, 14), page.number = number_at(file, 18);
  page.sizes = file.subspan(kPageHead, n_segments);
  size_t n_bytes = 0;
  for (const std::byte size : page.sizes) n_bytes += std::to_integer<size_t>(size);
  const size_t end = kPageHead + n_segments + n_bytes;
  if (file.size() < end) return false;
  page.body = file.subspan(kPageHead + n_segments, n_bytes);
  constexpr size_t kSum = 22;  // where the checksum is, which counts as zeros
  constexpr std::byte kZeros[4] = {};
  boost::crc_optimal<32, 0x04C11DB7, 0, 0, false, false> sum;
  sum.process_bytes(file.data(), kSum);
  sum.process_bytes(kZeros, sizeof kZeros);
  sum.process_bytes(file.data() + kSum + sizeof kZeros, end - kSum - sizeof kZeros);
  if (sum.checksum() != number_at(file, kSum)) return false;
  file = file.subspan(end);
  return true;
}

bool is_identification(Bytes packet) {
  if (packet.size() < 30 || !begins(packet, "\x01vorbis")) return false;
  const unsigned blocks = byte_at(packet, 28), small = blocks & 15, large = blocks >> 4;
  const auto rate = static_cast<int32_t>(number_at(packet, 12));
  return number_at(packet, 7) == 0 && byte_at(packet, 11) > 0 && rate > 0 && small >= 6 &&
         small <= large && large <= 13 && (byte_at(packet, 29) & 1) == 1;
}

}  // namespace

bool has_ogg_headers(Bytes file) {
  constexpr std::ptrdiff_t kHeaders = 3;
  Page page;
  if (!take_page(file, page) || page.flags != kFirst) return false;
  if (!begins(page.body, "\x01vorbis")) return true;
  // The first packet is alone on its page.
  const auto ends = [](std::byte size) { return std::to_integer<unsigned>(size) < 255; };
  const bool alone = std::ranges::find_if(page.sizes, ends) == page.sizes.end() - 1;
  if (!alone || !is_identification(page.body)) return false;
  const uint32_t stream = page.stream;
  uint32_t number = page.number;
  bool goes_on = false;
  for (std::ptrdiff_t n_packets = 1; n_packets < kHeaders;) {
    if (!take_page(file, page) || page.stream != stream || page.number != ++number) return false;
    if (page.flags != (goes_on ? kContinued : 0U)) return false;
    n_packets += std::ranges::count_if(page.sizes, ends);
    if (!page.sizes.empty()) goes_on = !ends(page.sizes.back());
  }
  return true;
}

}  // namespace penstock
