#include "grammar/parts/refusal.h"

namespace penstock::grammar {

const char* name_of(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kUnsupported: return "unsupported";
    case RefusalKind::kInvalid: return "invalid";
    case RefusalKind::kTooLarge: return "too_large";
  }
  return "invalid";
}

}  // namespace penstock::grammar
