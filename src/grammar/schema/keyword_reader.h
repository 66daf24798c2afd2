// Reads the keywords of one schema.
#pragma once
#include <span>

#include "grammar/regex/parser.h"
#include "grammar/schema/reader.h"

namespace penstock::grammar {

class KeywordReader {
 public:
  using Handler = Compiled<void> (KeywordReader::*)(const JsonValue& value);
  struct Keyword {
    std::string_view name;
    // null: an annotation, which constrains nothing
    Handler read;
    Draft first = Draft::k4, last = Draft::k2020;  // drafts that define it
  };
  // The list of all keywords. A new keyword is a row here.
  static std::span<const Keyword> keywords();
  static const Keyword* find_keyword(std::string_view name);  // null: no such keyword

  KeywordReader(SchemaReader& reader, const JsonValue& source, Schema& out)
      : reader_(reader), source_(source), out_(out), draft_(reader.references_.draft(source)) {}
  Compiled<void> run();

 private:
  // Returns the position of the keyword that is being read.
  JsonPointer where() const { return out_.where.at(keyword_); }
  tl::unexpected<Refusal> refused(RefusalKind kind, std::string_view message) const;
  tl::unexpected<Refusal> invalid(std::string_view message) const {
    return refused(RefusalKind::kInvalid, message);
  }
  tl::unexpected<Refusal> unsupported(std::string_view message) const {
    return refused(RefusalKind::kUnsupported, message);
  }
  void note(std::string message) const { reader_.note(where(), std::move(message)); }

  Compiled<SchemaId> schema(const JsonValue& value, const JsonPointer& where);
  Compiled<std::vector<SchemaId>> schemas(const JsonValue& value);
  Compiled<std::vector<std::pair<std::string, SchemaId>>> named_schemas(const JsonValue& value);
  Compiled<Decimal> number(const JsonValue& value) const;
  Compiled<ExprId> regex(std::string_view text, RegexScope scope, const JsonPointer& where) const;
  Compiled<void> set_schema(const JsonValue& value, std::optional<SchemaId>& slot);
  Compiled<void> set_count(const JsonValue& value, uint64_t& slot);

  bool applies(const Keyword& keyword) const {
    return draft_ == Draft::kUnstated || (keyword.first <= draft_ && draft_ <= keyword.last);
  }
  Compiled<void> read_member(const JsonMember& member);
  Compiled<void> unknown(std::string_view name);
  void finish();

  Compiled<void> set_bound(const JsonValue& value, bool low, bool open);
  Compiled<void> set_exclusive(const JsonValue& value, bool low);
  Compiled<void> refer(const JsonValue& value, std::string_view reference);

  Compiled<void> read_type(const JsonValue& value);
  Compiled<void> read_nullable(const JsonValue& value);
  Compiled<void> read_enum(const JsonValue& value);
  Compiled<void> read_const(const JsonValue& value);
  Compiled<void> read_minimum(const JsonValue& value) { return set_bound(value, true, false); }
  Compiled<void> read_maximum(const JsonValue& value) { return set_bound(value, false, false); }
  Compiled<void> read_exclusive_minimum(const JsonValue& value) {
    return set_exclusive(value, true);
  }
  Compiled<void> read_exclusive_maximum(const JsonValue& value) {
    return set_exclusive(value, false);
  }
  Compiled<void> read_multiple_of(const JsonValue& value);
  Compiled<void> read_min_length(const JsonValue& value) { return set_min(value, out_.length); }
  Compiled<void> read_max_length(const JsonValue& value) { return set_max(value, out_.length); }
  Compiled<void> read_pattern(const JsonValue& value);
  Compiled<void> read_format(const JsonValue& value);
  Compiled<void> read_prefix_items(const JsonValue& value);
  Compiled<void> read_items(const JsonValue& value);
  Compiled<void> read_additional_items(const JsonValue& value);
  Compiled<void> read_contains(const JsonValue& value);
  Compiled<void> read_min_contains(const JsonValue& value);
  Compiled<void> read_max_contains(const JsonValue& value);
  Compiled<void> read_min_items(const JsonValue& value) { return set_min(value, out_.n_items); }
  Compiled<void> read_max_items(const JsonValue& value) { return set_max(value, out_.n_items); }
  Compiled<void> read_unique_items(const JsonValue& value);
  Compiled<void> read_unevaluated_items(const JsonValue& value) {
    return set_schema(value, out_.unevaluated_items);
  }
  Compiled<void> read_properties(const JsonValue& value);
  Compiled<void> read_pattern_properties(const JsonValue& value);
  Compiled<void> read_additional_properties(const JsonValue& value) {
    return set_schema(value, out_.additional_properties);
  }
  Compiled<void> read_property_names(const JsonValue& value) {
    return set_schema(value, out_.property_names);
  }
  Compiled<void> read_required(const JsonValue& value);
  Compiled<void> read_min_properties(const JsonValue& value) {
    return set_min(value, out_.n_properties);
  }
  Compiled<void> read_max_properties(const JsonValue& value) {
    return set_max(value, out_.n_properties);
  }
  Compiled<void> read_dependencies(const JsonValue& value) {
    return read_all_dependencies(value, true);
  }
  Compiled<void> read_dependent_required(const JsonValue& value) {
    return read_all_dependencies(value, false);
  }
  Compiled<void> read_all_dependencies(const JsonValue& value, bool schemas_too);
  Compiled<void> read_dependency(const JsonMember& member, bool schemas_too);
  Compiled<void> read_dependent_schemas(const JsonValue& value);
  Compiled<void> read_unevaluated_properties(const JsonValue& value) {
    return set_schema(value, out_.unevaluated_properties);
  }
  Compiled<void> read_all_of(const JsonValue& value);
  Compiled<void> read_any_of(const JsonValue& value);
  Compiled<void> read_one_of(const JsonValue& value);
  Compiled<void> read_not(const JsonValue& value);
  Compiled<void> read_if(const JsonValue& value) { return set_schema(value, out_.condition); }
  Compiled<void> read_then(const JsonValue& value) { return read_branch(value, out_.then); }
  Compiled<void> read_else(const JsonValue& value) { return read_branch(value, out_.otherwise); }
  Compiled<void> read_branch(const JsonValue& value, std::optional<SchemaId>& slot);
  Compiled<void> read_ref(const JsonValue& value);
  Compiled<void> read_dynamic_ref(const JsonValue& value);
  Compiled<void> read_recursive_ref(const JsonValue& value);
  // for keywords that another handler reads, or that are only targets of references
  Compiled<void> skip(const JsonValue&) { return {}; }
  Compiled<void> read_discriminator(const JsonValue& value);

  Compiled<void> set_min(const JsonValue& value, CountWindow& window) {
    return set_count(value, window.min);
  }
  Compiled<void> set_max(const JsonValue& value, CountWindow& window) {
    return set_count(value, window.max);
  }

  SchemaReader& reader_;
  const JsonValue& source_;
  Schema& out_;
  Draft draft_;
  std::string_view keyword_;
  bool nullable_ = false;
};

}  // namespace penstock::grammar
