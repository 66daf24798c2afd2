#include "grammar/schema/keyword_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/regex/parser.h"
#include "grammar/schema/formats.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

const char* name_of(Draft draft) {
  switch (draft) {
    case Draft::k4: return "draft 4";
    case Draft::k6: return "draft 6";
    case Draft::k7: return "draft 7";
    case Draft::k2019: return "draft 2019-09";
    default: return "draft 2020-12";
  }
}

Compiled<std::vector<std::string>> names_of(const JsonValue& value, const JsonPointer& where,
                                            std::string_view keyword) {
  std::vector<std::string> result;
  bool fine = value.is_array();
  for (const JsonMember& member : value.members) {
    fine &= member.value.is_string() && unicode::is_valid(member.value.string);
    result.push_back(member.value.string);
  }
  if (fine) return result;
  return refuse(RefusalKind::kInvalid, where.text(),
                fmt::format("{}: expected a list of names", keyword), std::string(keyword));
}

// The type names found in "type".
struct NamedTypes {
  uint8_t types = 0;
  bool number = false, integer = false;

  bool add(const JsonValue& name) {
    constexpr std::pair<std::string_view, uint8_t> kNames[] = {
        {"null", bit(ValueType::kNull)},
        {"boolean", bit(ValueType::kFalse) | bit(ValueType::kTrue)},
        {"string", bit(ValueType::kString)},
        {"array", bit(ValueType::kArray)},
        {"object", bit(ValueType::kObject)},
        {"number", bit(ValueType::kNumber)},
        {"integer", bit(ValueType::kNumber)}};
    const auto known = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) {
      return name.is_string() && name.string == n.first;
    });
    if (known == std::end(kNames)) return false;
    types |= known->second;
    number |= known->first == "number";
    integer |= known->first == "integer";
    return true;
  }
};

// Keeps the narrower of two bounds, open or closed.
void narrow_bound(std::optional<NumberBound>& slot, const Decimal& bound, bool low, bool open) {
  if (slot && (low ? slot->value > bound : slot->value < bound)) return;
  open |= slot && slot->value == bound && slot->open;
  slot = NumberBound{bound, open};
}

}  // namespace

tl::unexpected<Refusal> KeywordReader::refused(RefusalKind kind, std::string_view message) const {
  return refuse(kind, where().text(), fmt::format("{}: {}", keyword_, message),
                std::string(keyword_));
}

Compiled<void> KeywordReader::run() {
  if (source_.is_bool()) {
    out_.never = source_.kind == JsonValue::Kind::kFalse;
    return {};
  }
  if (!source_.is_object()) {
    return refuse(RefusalKind::kInvalid, out_.where.text(), "a schema is an object, true or false");
  }
  const JsonValue* ref = source_.find("$ref");
  if (draft_ <= Draft::k7 && ref != nullptr && ref->is_string()) {
    keyword_ = "$ref";
    const bool alone =
        std::all_of(source_.members.begin(), source_.members.end(), [](const JsonMember& m) {
          const Keyword* keyword = find_keyword(m.key);
          return m.key == "$ref" || keyword == nullptr || keyword->read == nullptr ||
                 keyword->read == &KeywordReader::skip;
        });
    if (!alone)
      note(fmt::format("in {} the other keywords beside it mean nothing", name_of(draft_)));
    return read_ref(*ref);
  }
  for (const JsonMember& member : source_.members) {
    if (auto done = read_member(member); !done) return done;
  }
  finish();
  return {};
}

Compiled<void> KeywordReader::read_member(const JsonMember& member) {
  keyword_ = member.key;
  const Keyword* keyword = find_keyword(member.key);
  if (keyword == nullptr) return unknown(member.key);
  if (keyword->read == nullptr) return {};
  if (!applies(*keyword)) {
    note(fmt::format("no keyword of {}, which $schema names: it allows and forbids nothing",
                     name_of(draft_)));
    return {};
  }
  return (this->*keyword->read)(member.value);
}

// Handles combinations of keywords.
void KeywordReader::finish() {
  if (nullable_) out_.types |= bit(ValueType::kNull);
  out_.names_members = reader_.style_.closed_objects &&
                       (out_.additional_properties || out_.unevaluated_properties ||
                        !out_.pattern_properties.empty() || source_.find("properties") != nullptr);
}

Compiled<SchemaId> KeywordReader::schema(const JsonValue& value, const JsonPointer& where) {
  if (!value.is_object() && !value.is_bool())
    return refuse(RefusalKind::kInvalid, where.text(), "a schema is an object, true or false",
                  std::string(keyword_));
  return reader_.id_of(value, where);
}

Compiled<void> KeywordReader::set_schema(const JsonValue& value, std::optional<SchemaId>& slot) {
  auto id = schema(value, where());
  if (!id) return tl::unexpected(std::move(id).error());
  slot = *id;
  return {};
}

Compiled<std::vector<SchemaId>> KeywordReader::schemas(const JsonValue& value) {
  if (!value.is_array()) return invalid("expected a list of schemas");
  std::vector<SchemaId> result;
  for (size_t i = 0; i < value.members.size(); ++i) {
    auto id = schema(value.members[i].value, where().at(i));
    if (!id) return tl::unexpected(std::move(id).error());
    result.push_back(*id);
  }
  return result;
}

Compiled<std::vector<std::pair<std::string, SchemaId>>> KeywordReader::named_schemas(
    const JsonValue& value) {
  if (!value.is_object()) return invalid("expected an object of schemas");
  std::vector<std::pair<std::string, SchemaId>> result;
  for (const JsonMember& member : value.members) {
    const JsonPointer at = where().at(member.key);
    if (!unicode::is_valid(member.key))
      return refuse(RefusalKind::kInvalid, at.text(), "the name is not UTF-8",
                    std::string(keyword_));
    auto id = schema(member.value, at);
    if (!id) return tl::unexpected(std::move(id).error());
    result.emplace_back(member.key, *id);
  }
  return result;
}

Compiled<Decimal> KeywordReader::number(const JsonValue& value) const {
  if (!value.is_number()) return invalid("expected a number");
  return value.number;
}

Compiled<void> KeywordReader::set_count(const JsonValue& value, uint64_t& slot) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  if (!value.is_number() || !value.number.is_integer() || value.number.negative())
    return invalid("expected a whole number, 0 or more");
  const auto n = value.number.to_int();
  slot = n ? static_cast<uint64_t>(*n) : kMost;
  return {};
}

Compiled<ExprId> KeywordReader::regex(std::string_view text, RegexScope scope,
                                      const JsonPointer& at) const {
  auto expr = reader_.regexes_.parse(text, scope);
  if (expr) return *expr;
  Refusal refusal = std::move(expr).error();
  refusal.where = at.text();
  refusal.keyword = keyword_;
  return tl::unexpected(std::move(refusal));
}

Compiled<void> KeywordReader::read_type(const JsonValue& value) {
  NamedTypes named;
  bool known = value.is_array() ? !value.members.empty() : named.add(value);
  for (const JsonMember& member : value.members)
    known &= value.is_array() && named.add(member.value);
  if (!known)
    return invalid(
        "expected \"null\", \"boolean\", \"object\", \"array\", \"number\", \"integer\" or "
        "\"string\", or a list of these");
  out_.types = named.types;
  out_.integers_only = named.integer && !named.number;
  out_.integers_plain = draft_ == Draft::k4;
  return {};
}

Compiled<void> KeywordReader::read_nullable(const JsonValue& value) {
  if (!value.is_bool()) return invalid("expected true or false");
  nullable_ = value.kind == JsonValue::Kind::kTrue;
  return {};
}

Compiled<void> KeywordReader::read_enum(const JsonValue& value) {
  if (!value.is_array()) return invalid("expected a list of values");
  auto& list = out_.values.emplace_back();
  for (const JsonMember& member : value.members) list.push_back(&member.value);
  return {};
}

Compiled<void> KeywordReader::read_const(const JsonValue& value) {
  out_.values.push_back({&value});
  return {};
}

Compiled<void> KeywordReader::set_bound(const JsonValue& value, bool low, bool open) {
  auto bound = number(value);
  if (!bound) return tl::unexpected(std::move(bound).error());
  narrow_bound(low ? out_.low : out_.high, *bound, low, open);
  return {};
}

Compiled<void> KeywordReader::set_exclusive(const JsonValue& value, bool low) {
  const bool flag_allowed = draft_ == Draft::k4 || draft_ == Draft::kUnstated;
  if (!value.is_bool() || !flag_allowed) {
    if (draft_ == Draft::k4) return invalid("expected true or false, beside minimum or maximum");
    return set_bound(value, low, true);
  }
  const JsonValue* bound = source_.find(low ? "minimum" : "maximum");
  if (value.kind == JsonValue::Kind::kFalse || bound == nullptr) return {};
  return set_bound(*bound, low, true);
}

Compiled<void> KeywordReader::read_multiple_of(const JsonValue& value) {
  auto factor = number(value);
  if (!factor) return tl::unexpected(std::move(factor).error());
  if (factor->is_zero() || factor->negative()) return invalid("expected a number more than 0");
  out_.multiple_of = *factor;
  return {};
}

Compiled<void> KeywordReader::read_pattern(const JsonValue& value) {
  if (!value.is_string()) return invalid("expected a regular expression");
  auto expr = regex(value.string, RegexScope::kSearch, where());
  if (!expr) return tl::unexpected(std::move(expr).error());
  out_.patterns.push_back(*expr);
  return {};
}

Compiled<void> KeywordReader::read_format(const JsonValue& value) {
  if (!value.is_string()) return invalid("expected the name of a format");
  const Format* format = find_format(value.string);
  if (value.string == "idn-hostname")
    return unsupported("idn-hostname is not checked here: hostname is, and pattern");
  if (format == nullptr) {
    note(fmt::format("the format \"{}\" is not enforced", value.string));
    return {};
  }
  if (!format->note.empty()) note(std::string(format->note));
  if (format->low) {
    out_.format_bounds = {NumberBound{*format->low}, NumberBound{*format->high}};
    return {};
  }
  auto expr = regex(format->pattern, RegexScope::kWhole, where());
  if (!expr) return tl::unexpected(std::move(expr).error());
  out_.format = *expr;
  out_.format_length = format->length;
  out_.format_narrowed = format->narrowed;
  return {};
}

Compiled<void> KeywordReader::read_prefix_items(const JsonValue& value) {
  auto list = schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.prefix_items = *std::move(list);
  return {};
}

Compiled<void> KeywordReader::read_items(const JsonValue& value) {
  if (value.is_array() && draft_ != Draft::k2020) return read_prefix_items(value);
  return set_schema(value, out_.items);
}

Compiled<void> KeywordReader::read_additional_items(const JsonValue& value) {
  const JsonValue* items = source_.find("items");
  if (items == nullptr || !items->is_array()) {
    note("means nothing unless items is a list");
    return {};
  }
  return set_schema(value, out_.items);
}

Compiled<void> KeywordReader::read_contains(const JsonValue& value) {
  out_.contains_evaluates = draft_ >= Draft::k2020;
  return set_schema(value, out_.contains);
}

Compiled<void> KeywordReader::read_min_contains(const JsonValue& value) {
  return set_min(value, out_.contained);
}
Compiled<void> KeywordReader::read_max_contains(const JsonValue& value) {
  return set_max(value, out_.contained);
}

Compiled<void> KeywordReader::read_unique_items(const JsonValue& value) {
  if (!value.is_bool()) return invalid("expected true or false");
  out_.unique_items = value.kind == JsonValue::Kind::kTrue;
  return {};
}

Compiled<void> KeywordReader::read_properties(const JsonValue& value) {
  auto list = named_schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.properties = *std::move(list);
  return {};
}

Compiled<void> KeywordReader::read_pattern_properties(const JsonValue& value) {
  auto list = named_schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  for (const auto& [pattern, id] : *list) {
    auto expr = regex(pattern, RegexScope::kSearch, where().at(pattern));
    if (!expr) return tl::unexpected(std::move(expr).error());
    out_.pattern_properties.emplace_back(*expr, id);
  }
  return {};
}

Compiled<void> KeywordReader::read_required(const JsonValue& value) {
  auto list = names_of(value, where(), keyword_);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.required = *std::move(list);
  return {};
}

Compiled<void> KeywordReader::read_dependency(const JsonMember& member, bool schemas_too) {
  const JsonPointer at = where().at(member.key);
  if (schemas_too && (member.value.is_object() || member.value.is_bool())) {
    auto id = schema(member.value, at);
    if (!id) return tl::unexpected(std::move(id).error());
    out_.dependent_schemas.emplace_back(member.key, *id);
    return {};
  }
  const bool one = schemas_too && member.value.is_string();
  auto list =
      one ? std::vector<std::string>{member.value.string} : names_of(member.value, at, keyword_);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.dependent_required.emplace_back(member.key, *std::move(list));
  return {};
}

Compiled<void> KeywordReader::read_all_dependencies(const JsonValue& value, bool schemas_too) {
  if (!value.is_object()) return invalid("expected an object");
  for (const JsonMember& member : value.members) {
    if (auto done = read_dependency(member, schemas_too); !done) return done;
  }
  return {};
}

Compiled<void> KeywordReader::read_dependent_schemas(const JsonValue& value) {
  auto list = named_schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  for (auto& dependent : *list) out_.dependent_schemas.push_back(std::move(dependent));
  return {};
}

Compiled<void> KeywordReader::read_all_of(const JsonValue& value) {
  auto list = schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.all_of.insert(out_.all_of.end(), list->begin(), list->end());
  return {};
}

Compiled<void> KeywordReader::read_any_of(const JsonValue& value) {
  auto list = schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  out_.any_of.push_back(*std::move(list));
  return {};
}

Compiled<void> KeywordReader::read_one_of(const JsonValue& value) {
  auto list = schemas(value);
  if (!list) return tl::unexpected(std::move(list).error());
  (reader_.style_.one_of_as_any_of ? out_.any_of : out_.one_of).push_back(*std::move(list));
  if (reader_.style_.one_of_as_any_of) note("taken as anyOf, as was asked for");
  return {};
}

Compiled<void> KeywordReader::read_not(const JsonValue& value) {
  auto id = schema(value, where());
  if (!id) return tl::unexpected(std::move(id).error());
  out_.none_of.push_back(*id);
  return {};
}

Compiled<void> KeywordReader::read_branch(const JsonValue& value, std::optional<SchemaId>& slot) {
  if (source_.find("if") != nullptr) return set_schema(value, slot);
  note("means nothing without if");
  return {};
}

Compiled<void> KeywordReader::refer(const JsonValue& value, std::string_view reference) {
  if (draft_ == Draft::kUnstated && reader_.references_.base_depends_on_draft(value) &&
      !reference.starts_with('#')) {
    return unsupported("drafts differ about an identifier beside it: state the draft by $schema");
  }
  const auto target = reader_.references_.resolve(value, reference);
  if (!target) {
    return unsupported(fmt::format(
        "\"{}\" is not in this document, and no other is read: put it under $defs", reference));
  }
  if (target->schema == &source_) return invalid("the schema refers to itself");
  auto id = schema(*target->schema, target->where);
  if (!id) return invalid(fmt::format("\"{}\" is no schema", reference));
  out_.all_of.push_back(*id);
  return {};
}

Compiled<void> KeywordReader::read_ref(const JsonValue& value) {
  if (!value.is_string()) return invalid("expected a reference");
  return refer(source_, value.string);
}

Compiled<void> KeywordReader::read_dynamic_ref(const JsonValue& value) {
  if (!value.is_string()) return invalid("expected a reference");
  const size_t hash = value.string.rfind('#');
  const std::string anchor = hash == std::string::npos ? "" : value.string.substr(hash + 1);
  if (!anchor.empty() && anchor.front() != '/' && reader_.references_.n_dynamic(anchor) > 1) {
    return unsupported(
        fmt::format("several schemas have the $dynamicAnchor \"{}\": which one is meant depends on "
                    "the way; use $ref",
                    anchor));
  }
  return refer(source_, value.string);
}

Compiled<void> KeywordReader::read_recursive_ref(const JsonValue& value) {
  if (!value.is_string()) return invalid("expected a reference");
  if (reader_.references_.n_dynamic("") > 1)
    return unsupported("several schemas have a $recursiveAnchor: use $ref");
  return refer(source_, value.string);
}

Compiled<void> KeywordReader::read_discriminator(const JsonValue&) {
  note("OpenAPI's discriminator allows and forbids nothing");
  return {};
}

}  // namespace penstock::grammar
