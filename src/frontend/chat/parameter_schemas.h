// Reads from a tool's JSON Schema the rules for parameters that are written one by one.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "base/text_hash.h"
#include "frontend/chat/call_format.h"

namespace penstock {

// Counters of a request's bounds, which all of its tools share. copied: values of schemas that
// documents and rules copied; members: parameters that grammars write one by one; elements: members of
// their values that are; inner: values in lists and objects whose types are known; walked: names of
// required members and alternatives that were read for these.
struct SchemaBudget {
  size_t copied = 0, walked = 0;
  int members = 0, elements = 0, inner = 0;
};

// A JSON Schema, and what is found out about schemas inside it, which are the arguments of its
// functions. Work and memory stay linear in the document, however its references run. The document
// outlives the object. Not thread-safe.
class SchemaDocument {
 public:
  // The budget outlives the object.
  SchemaDocument(const nlohmann::ordered_json& root, SchemaBudget& budget)
      : root_(root), budget_(budget) {}

  // Returns the schema itself, or the target of its $ref inside the document (siblings of $ref are
  // ignored); null when the target does not exist.
  const nlohmann::ordered_json* resolved(const nlohmann::ordered_json& schema);

  // Returns the JSON types of which some values may be allowed; values of every other type are
  // forbidden.
  JsonTypes types_of(const nlohmann::ordered_json& schema);

  // Returns types_of(), and the types of what is in lists and objects: of 32 levels, and of 40,000
  // values in all that share the budget.
  ParameterType value_type(const nlohmann::ordered_json& schema) { return value_type(schema, 0); }

  // Returns the schema as a self-contained document; without_strings: strings are excluded. Errors:
  // kUnsupported, when it has a reference to anything but definitions, and when the definitions
  // have been copied into too many documents.
  Result<nlohmann::ordered_json> document_of(const nlohmann::ordered_json& schema,
                                             bool without_strings);

  // Returns the rules for strings: for each alternative an object of enum, const, pattern, format,
  // minLength and maxLength. Errors: kUnsupported, when strings are restricted by other keywords,
  // when there are too many alternatives, and when the rules have been copied too often.
  Result<std::vector<nlohmann::ordered_json>> string_rules(const nlohmann::ordered_json& schema);

 private:
  using Index = ViewMap<const nlohmann::ordered_json*>;

  const nlohmann::ordered_json* member(const nlohmann::ordered_json& object,
                                       const std::string& name);
  JsonTypes types_of(const nlohmann::ordered_json& schema, int depth);
  JsonTypes types_said_by(const nlohmann::ordered_json& schema, int depth);
  ParameterType value_type(const nlohmann::ordered_json& schema, int depth);
  void add_inner(const nlohmann::ordered_json& schema, int depth, int n_branches,
                 InnerTypes& inner);
  Status collect_rules(const nlohmann::ordered_json& given, int depth, int& n_left,
                       std::vector<nlohmann::ordered_json>& out);
  Status count_copied(size_t n, std::string_view key);
  Status add_definitions(nlohmann::ordered_json& document);

  const nlohmann::ordered_json& root_;
  SchemaBudget& budget_;
  std::unordered_set<const nlohmann::ordered_json*> copied_;  // schemas that have a document
  std::unordered_map<const nlohmann::ordered_json*, Index> indexes_;    // of large objects
  std::unordered_map<const nlohmann::ordered_json*, JsonTypes> types_;  // that are known
  // by schema and depth
  std::map<std::pair<const nlohmann::ordered_json*, int>, std::shared_ptr<const InnerTypes>> inner_;
  size_t n_definitions_ = 0;  // values
};

// Returns the names of the types, as schemas list them.
nlohmann::ordered_json type_names(JsonTypes types);

// Returns the parameter types of all tools whose parameters are an object. tools: OpenAI's list.
// inner: also the types of what is in lists and objects.
ParameterTypes parameter_types(const nlohmann::ordered_json& tools, bool inner = false);

}  // namespace penstock
