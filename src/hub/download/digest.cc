#include "hub/download/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/check.h"

namespace penstock {
namespace {

EVP_MD_CTX* evp(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Checksum checksum_of_etag(std::string_view etag) {
  if (!std::ranges::all_of(etag, is_ascii_hex_digit)) return {};
  std::string hex(etag);
  hex = ascii_lower(hex);
  if (etag.size() == 64) return {Checksum::Kind::kSha256, std::move(hex)};
  if (etag.size() == 40) return {Checksum::Kind::kGitBlob, std::move(hex)};
  return {};
}

void Digest::Free::operator()(void* context) const { EVP_MD_CTX_free(evp(context)); }

Digest::Digest(Checksum::Kind kind, int64_t size) {
  if (kind == Checksum::Kind::kNone) return;
  context_.reset(EVP_MD_CTX_new());
  const EVP_MD* method = kind == Checksum::Kind::kSha256 ? EVP_sha256() : EVP_sha1();
  PENSTOCK_CHECK(context_ != nullptr &&
                 EVP_DigestInit_ex(evp(context_.get()), method, nullptr) == 1);
  if (kind != Checksum::Kind::kGitBlob) return;
  const std::string header = fmt::format("blob {}", size);
  update(std::as_bytes(std::span(header.c_str(), header.size() + 1)));
}

void Digest::update(std::span<const std::byte> data) {
  if (context_) EVP_DigestUpdate(evp(context_.get()), data.data(), data.size());
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  if (context_) EVP_DigestFinal_ex(evp(context_.get()), bytes.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace penstock
