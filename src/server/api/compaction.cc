#include "server/api/compaction.h"

#include <openssl/evp.h>

#include "server/api/api_request.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

constexpr std::string_view kMark = "penstock.summary.1:";

std::string encoded(const std::string& text) {
  std::string out((text.size() + 2) / 3 * 4 + 1, '\0');  // includes the terminating zero
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                  reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  out.pop_back();
  return out;
}

// Returns "" for malformed base64.
std::string decoded(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > INT32_MAX) return {};
  std::string out(text.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(text.data()),
                                static_cast<int>(text.size()));
  if (n < 0) return {};
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  out.resize(static_cast<size_t>(n) - std::min(padding, static_cast<size_t>(n)));
  return out;
}

}  // namespace

std::string sealed(std::string_view mark, const std::string& text) {
  return std::string(mark) + encoded(text);
}

std::string unsealed(std::string_view mark, std::string_view content) {
  if (!content.starts_with(mark)) return {};
  std::string text = decoded(content.substr(mark.size()));
  return unicode::is_valid(text) ? text : std::string();
}

json compaction_item(const std::string& summary) {
  return {{"id", random_id("cmp_")},
          {"type", "compaction"},
          {"encrypted_content", sealed(kMark, summary)}};
}

Result<std::string> text_of_compaction(const json& item, const std::string& where) {
  const std::string summary = unsealed(kMark, get_string(item, "encrypted_content"));
  if (summary.empty()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "{}.encrypted_content: expected what /v1/responses/compact of this server has given",
        where);
  }
  return "Summary of the conversation before this message:\n" + summary;
}

}  // namespace penstock
