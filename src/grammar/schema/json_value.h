// JSON as it was written: members in order, numbers exact, depth bounded.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/decimal.h"
#include "grammar/parts/refusal.h"

namespace penstock::grammar {

struct JsonMember;

// A tree that owns its parts.
struct JsonValue {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string string;               // kString: decoded
  Decimal number;                   // kNumber
  std::vector<JsonMember> members;  // kArray: without keys

  bool is_string() const { return kind == Kind::kString; }
  bool is_number() const { return kind == Kind::kNumber; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  bool is_bool() const { return kind == Kind::kFalse || kind == Kind::kTrue; }
  // The member of an object; null when there is none.
  const JsonValue* find(std::string_view key) const;
  // As JSON without white space.
  std::string text() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Equal by value: 1.0 is 1, members in any order.
bool operator==(const JsonValue& a, const JsonValue& b);

// RFC 8259. Lone surrogates are kept as the three bytes they would have. Errors: kInvalid (with
// line and column as the place; a key that comes twice is one), kTooLarge (nested deeper than
// max_depth, more than max_values values).
Compiled<JsonValue> parse_json(std::string_view text, int max_depth, size_t max_values = 300'000);

}  // namespace penstock::grammar
