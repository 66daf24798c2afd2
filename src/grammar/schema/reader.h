// Reads a JSON Schema: the one list of keywords with what each does.
#pragma once
#include <deque>
#include <memory>
#include <unordered_map>

#include "grammar/parts/budget.h"
#include "grammar/regex/parser.h"
#include "grammar/schema/json_style.h"
#include "grammar/schema/references.h"
#include "grammar/schema/schema.h"

namespace penstock::grammar {

class SchemaReader {
 public:
  // document: lives as long as the reader.
  SchemaReader(const JsonValue& document, const JsonStyle& style, RegexTable& regexes,
               Budget& budget, std::vector<Note>& notes);

  // Reads what can be reached from the document's root, which is schema 0. Errors: kInvalid,
  // kUnsupported, kTooLarge, with the place and the keyword.
  Compiled<void> read();

  const Schema& operator[](SchemaId id) const { return schemas_[id]; }
  SchemaId size() const { return static_cast<SchemaId>(schemas_.size()); }
  // A schema that no text has. Later ones may move earlier ones.
  SchemaId add(Schema schema);
  // What allows nothing but the value, which lives as long as the reader.
  SchemaId constant(const JsonValue& value);
  SchemaId anything() const { return kAnything; }
  SchemaId nothing() const { return kNothing; }

 private:
  friend class KeywordContext;
  friend class KeywordReader;
  static constexpr SchemaId kAnything = 1, kNothing = 2;
  SchemaId id_of(const JsonValue& value, const JsonPointer& where);
  void note(const JsonPointer& where, std::string message);

  const JsonValue& document_;
  const JsonStyle& style_;
  RegexTable& regexes_;
  Budget& budget_;
  std::vector<Note>& notes_;
  References references_{budget_};
  std::deque<Schema> schemas_;
  std::unordered_map<const JsonValue*, SchemaId> ids_;
  std::unordered_map<const JsonValue*, SchemaId> constants_;
  std::vector<std::pair<const JsonValue*, SchemaId>> todo_;
  bool too_many_ = false;
  size_t note_bytes_ = 0;
};

}  // namespace penstock::grammar
