#include "server/http/gzip.h"

#include <gtest/gtest.h>

#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <random>

namespace penstock {
namespace {

uint32_t le32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string unzipped(std::string_view member, size_t size) {
  namespace zlib = boost::beast::zlib;
  constexpr size_t kHead = 10, kTail = 8;
  EXPECT_TRUE(member.starts_with("\x1f\x8b\x08"));
  const std::string_view tail = member.substr(member.size() - kTail);
  std::string out(size + 1, '\0');
  zlib::inflate_stream inflate;
  inflate.reset(15);
  zlib::z_params state;
  state.next_in = member.data() + kHead, state.avail_in = member.size() - kHead - kTail;
  state.next_out = out.data(), state.avail_out = out.size();
  boost::beast::error_code error;
  inflate.write(state, zlib::Flush::finish, error);
  EXPECT_EQ(error, zlib::error::end_of_stream);
  out.resize(state.total_out);
  boost::crc_32_type crc;
  crc.process_bytes(out.data(), out.size());
  EXPECT_EQ(le32(tail), crc.checksum());
  EXPECT_EQ(le32(tail.substr(4)), out.size());
  return out;
}

TEST(Gzip, TextsComeBack) {
  std::string noise(300'000, '\0');
  std::mt19937 random(1);
  for (char& c : noise) c = static_cast<char>(random());
  std::string metrics;
  for (int i = 0; i < 5000; ++i)
    metrics += "penstock:some_metric{label=\"x\"} " + std::to_string(i);
  for (const std::string& text : {std::string(), std::string("a"), noise, metrics}) {
    const std::string zipped = gzip(text);
    EXPECT_EQ(unzipped(zipped, text.size()), text);
  }
  EXPECT_LT(gzip(metrics).size(), metrics.size() / 4);
}

TEST(Gzip, IsAcceptedByTheHeader) {
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "deflate, gzip;q=0.5", "*", "br;q=1.0, *;q=0.1",
                          " gzip ; q=1", "gzip,deflate"})
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  for (const char* no : {"", "identity", "gzip;q=0", "gzip;q=0.000", "*;q=0", "gzip;q=0, *",
                         "*, gzip;q=0", "gzipped", "gzip;q=x", "br"})
    EXPECT_FALSE(accepts_gzip(no)) << no;
}

}  // namespace
}  // namespace penstock
