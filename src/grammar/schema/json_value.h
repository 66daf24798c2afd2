// A JSON document as written: members in order, numbers exact, depth bounded.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/decimal.h"
#include "grammar/parts/refusal.h"

namespace penstock::grammar {

struct JsonMember;

// A tree of values; each value owns its parts.
struct JsonValue {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string string;  // kString: the decoded text
  Decimal number;      // kNumber
  // kObject: members; kArray: items, with empty keys
  std::vector<JsonMember> members;

  bool is_string() const { return kind == Kind::kString; }
  bool is_number() const { return kind == Kind::kNumber; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  bool is_bool() const { return kind == Kind::kFalse || kind == Kind::kTrue; }
  // Returns the value of a member of an object; null: there is none.
  const JsonValue* find(std::string_view key) const;
  // Returns the value as JSON without white space.
  std::string text() const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Equality by value: 1.0 equals 1, and members may come in any order.
bool operator==(const JsonValue& a, const JsonValue& b);

// Parses JSON (RFC 8259). Lone surrogates become three bytes each. Errors: kInvalid with line and
// column (duplicate keys included), kTooLarge (nesting deeper than max_depth, or more than
// max_values values).
Compiled<JsonValue> parse_json(std::string_view text, int max_depth, size_t max_values = 300'000);

}  // namespace penstock::grammar
