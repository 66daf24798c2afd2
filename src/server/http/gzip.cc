#include "server/http/gzip.h"

#include <algorithm>
#include <boost/beast/zlib/deflate_stream.hpp>
#include <boost/crc.hpp>
#include <charconv>
#include <cstdint>

#include "base/check.h"

namespace penstock {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(first);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// Returns the text before the separator and removes both.
std::string_view next_part(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// Whether a coding's parameters allow it: any weight except 0.
bool has_weight(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view part = next_part(parameters, ';');
    if (!part.starts_with("q=") && !part.starts_with("Q=")) continue;
    double weight = 1;
    part.remove_prefix(2);
    const auto read = std::from_chars(part.data(), part.data() + part.size(), weight);
    return read.ec == std::errc() && weight > 0;
  }
  return true;
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) {
    return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y;
  });
}

void append_le32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 255);
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  bool any = false;
  while (!accept_encoding.empty()) {
    std::string_view rest = next_part(accept_encoding, ',');
    const std::string_view coding = next_part(rest, ';');
    if (is_same_word(coding, "gzip") || is_same_word(coding, "x-gzip")) return has_weight(rest);
    if (coding == "*") any = has_weight(rest);
  }
  return any;
}

std::string gzip(std::string_view text) {
  namespace zlib = boost::beast::zlib;
  constexpr int kLevel = 1, kWindowBits = 15, kMemory = 8;
  std::string out("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10);
  const size_t head = out.size();
  zlib::deflate_stream deflate;
  deflate.reset(kLevel, kWindowBits, kMemory, zlib::Strategy::normal);
  out.resize(head + deflate.upper_bound(text.size()));
  zlib::z_params state;
  state.next_in = text.data(), state.avail_in = text.size();
  state.next_out = out.data() + head, state.avail_out = out.size() - head;
  boost::beast::error_code error;
  deflate.write(state, zlib::Flush::finish, error);
  PENSTOCK_CHECK(error == zlib::error::end_of_stream);
  out.resize(head + state.total_out);
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  append_le32(out, crc.checksum());
  append_le32(out, static_cast<uint32_t>(text.size()));
  return out;
}

}  // namespace penstock
