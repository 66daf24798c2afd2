// Reads a JSON Schema document into a graph of schemas.
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
  // REQUIRES: the document outlives the reader.
  SchemaReader(const JsonValue& document, const JsonStyle& style, RegexTable& regexes,
               Budget& budget, std::vector<Note>& notes);

  // Reads all schemas that are reachable from the document's root, which becomes schema 0. Errors:
  // kInvalid, kUnsupported, kTooLarge, with position and keyword.
  Compiled<void> read();

  const Schema& operator[](SchemaId id) const { return schemas_[id]; }
  SchemaId size() const { return static_cast<SchemaId>(schemas_.size()); }
  // Adds a schema that is not in the document. References to schemas stay valid.
  SchemaId add(Schema schema);
  // Returns a schema that allows only this value. REQUIRES: the value outlives the reader.
  SchemaId constant(const JsonValue& value);
  SchemaId anything() const { return kAnything; }
  SchemaId nothing() const { return kNothing; }

 private:
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
