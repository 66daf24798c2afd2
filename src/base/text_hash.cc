#include "base/text_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace penstock {
namespace {

struct HashKey {
  uint64_t low, high;
};

const HashKey& hash_key() noexcept {
  static const HashKey key = [] {
    std::random_device random;
    const auto word = [&] { return uint64_t{random()} << 32 | random(); };
    return HashKey{word(), word()};
  }();
  return key;
}

struct SipState {
  uint64_t a, b, c, d;

  void round() {
    a += b, c += d;
    b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b, a += d;
    b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }
  void absorb(uint64_t word) {
    d ^= word;
    round();
    a ^= word;
  }
};

}  // namespace

uint64_t text_hash(std::string_view text) noexcept {
  const HashKey& key = hash_key();
  SipState state{key.low ^ 0x736F6D6570736575, key.high ^ 0x646F72616E646F6D,
                 key.low ^ 0x6C7967656E657261, key.high ^ 0x7465646279746573};
  uint64_t last = uint64_t{text.size()} << 56;
  for (; text.size() >= sizeof last; text.remove_prefix(sizeof last)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    state.absorb(word);
  }
  for (size_t i = 0; i < text.size(); ++i)
    last |= uint64_t{static_cast<uint8_t>(text[i])} << (8 * i);
  state.absorb(last);
  state.c ^= 0xFF;
  for (int i = 0; i < 3; ++i) state.round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

uint64_t number_hash(uint64_t first, uint64_t second) noexcept {
  const uint64_t both[2] = {first, second};
  char bytes[sizeof both];
  std::memcpy(bytes, both, sizeof both);
  return text_hash({bytes, sizeof bytes});
}

}  // namespace penstock
