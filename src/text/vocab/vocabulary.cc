#include "text/vocab/vocabulary.h"

namespace penstock {

ByteTokens byte_tokens(const Vocabulary& vocabulary) {
  ByteTokens ids;
  for (int byte = 0; byte < 256; ++byte)
    ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  return ids;
}

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace penstock
