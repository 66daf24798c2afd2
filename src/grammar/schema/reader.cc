#include "grammar/schema/reader.h"

#include "grammar/schema/keyword_reader.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxNoteBytes = 256 << 10;

}  // namespace

ValueType type_of(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull: return ValueType::kNull;
    case JsonValue::Kind::kFalse: return ValueType::kFalse;
    case JsonValue::Kind::kTrue: return ValueType::kTrue;
    case JsonValue::Kind::kNumber: return ValueType::kNumber;
    case JsonValue::Kind::kString: return ValueType::kString;
    case JsonValue::Kind::kArray: return ValueType::kArray;
    case JsonValue::Kind::kObject: return ValueType::kObject;
  }
  return ValueType::kNull;
}

SchemaReader::SchemaReader(const JsonValue& document, const JsonStyle& style, RegexTable& regexes,
                           Budget& budget, std::vector<Note>& notes)
    : document_(document), style_(style), regexes_(regexes), budget_(budget), notes_(notes) {}

Compiled<void> SchemaReader::read() {
  if (auto done = references_.index(document_); !done) return done;
  id_of(document_, {});
  add({});
  add({.never = true});
  while (!todo_.empty()) {
    const auto [source, id] = todo_.back();
    todo_.pop_back();
    Schema schema{.where = schemas_[id].where};
    if (auto done = KeywordReader(*this, *source, schema).run(); !done) return done;
    if (too_many_ || budget_.exhausted())
      return refuse(RefusalKind::kTooLarge, schema.where.text(),
                    "the schema has too many subschemas");
    schemas_[id] = std::move(schema);
  }
  return {};
}

SchemaId SchemaReader::id_of(const JsonValue& value, const JsonPointer& where) {
  if (value.is_bool() && &value != &document_)
    return value.kind == JsonValue::Kind::kTrue ? kAnything : kNothing;
  const auto [it, is_new] = ids_.emplace(&value, size());
  if (is_new) {
    add({.where = where});
    todo_.emplace_back(&value, it->second);
  }
  return it->second;
}

// Drops notes beyond the limit; the last one says so.
void SchemaReader::note(const JsonPointer& where, std::string message) {
  if (note_bytes_ > kMaxNoteBytes) return;
  notes_.push_back({where.text(), std::move(message)});
  note_bytes_ += notes_.back().where.size() + notes_.back().message.size();
  if (note_bytes_ > kMaxNoteBytes) notes_.push_back({"#", "there are more notes than are kept"});
}

SchemaId SchemaReader::add(Schema schema) {
  too_many_ |= !budget_.take_schemas(1);
  schemas_.push_back(std::move(schema));
  return size() - 1;
}

SchemaId SchemaReader::constant(const JsonValue& value) {
  const auto [it, is_new] = constants_.emplace(&value, size());
  if (is_new) {
    Schema schema;
    schema.values.push_back({&value});
    add(std::move(schema));
  }
  return it->second;
}

}  // namespace penstock::grammar
