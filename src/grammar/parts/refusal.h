// Refusals: reasons why a grammar was not compiled. They are meant to be shown to users and say
// what is wrong, where, and what would work.
#pragma once
#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace penstock::grammar {

enum class RefusalKind : uint8_t {
  kUnsupported,  // well-formed, but not enforced here
  kInvalid,      // malformed, or nothing can satisfy it
  kTooLarge,     // a limit of CompileLimits is exceeded
};

struct Refusal {
  RefusalKind kind = RefusalKind::kInvalid;
  // JSON pointer as a URI fragment ("#/properties/a/not"), or "line 3, column 7"
  std::string where;
  // keyword of the schema that is refused; "": none
  std::string keyword;
  // what is wrong and what would work, in one line
  std::string message;
};

const char* name_of(RefusalKind kind);  // "unsupported", "invalid", "too_large"

template <class T>
using Compiled = tl::expected<T, Refusal>;

inline tl::unexpected<Refusal> refuse(RefusalKind kind, std::string where, std::string message,
                                      std::string keyword = {}) {
  return tl::unexpected<Refusal>(
      Refusal{kind, std::move(where), std::move(keyword), std::move(message)});
}

}  // namespace penstock::grammar
