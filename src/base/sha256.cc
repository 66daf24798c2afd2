#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <new>

namespace penstock {

Sha256 sha256(std::string_view text) {
  Sha256 digest{};
  if (EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    throw std::bad_alloc();
  return digest;
}

std::string sha256_hex(std::string_view text) {
  std::string hex;
  for (const uint8_t byte : sha256(text)) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace penstock
