// Drafts, identifiers and references of a JSON Schema document. Nothing is fetched: what a document
// does not hold is refused.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/parts/budget.h"
#include "grammar/parts/refusal.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/json_value.h"

namespace penstock::grammar {

enum class Draft : uint8_t {
  k4,
  k6,
  k7,
  k2019,
  k2020,
  kUnstated
};  // unstated: 2020-12, with old forms where they are clear

// "http://json-schema.org/draft-07/schema#" and its like. nullopt: another one.
std::optional<Draft> draft_of(std::string_view schema_uri);

// A URI resolved against a base, as RFC 3986 has it. Both may be anything.
std::string resolve_uri(std::string_view base, std::string_view reference);

struct Target {
  const JsonValue* schema;
  JsonPointer where;
};

class References {
 public:
  explicit References(Budget& budget) : budget_(budget) {}

  // Errors: kUnsupported (an unknown $schema), kTooLarge.
  Compiled<void> index(const JsonValue& document);

  Draft draft(const JsonValue& schema) const;
  // Whether the schema has an identifier beside a $ref, which drafts up to 7 do not see.
  bool base_depends_on_draft(const JsonValue& schema) const;
  // What a $ref of this schema points to. nullopt: nothing in the document.
  std::optional<Target> resolve(const JsonValue& schema, std::string_view reference);
  // How many schemas have this $dynamicAnchor (or $recursiveAnchor, with the name "").
  int n_dynamic(std::string_view anchor) const;

 private:
  struct Resource {
    std::string uri;  // without a fragment; "" unless stated
    const JsonValue* root;
    JsonPointer where;
    Draft draft;
  };
  struct Place {
    const JsonValue* schema;
    JsonPointer where;
    uint32_t resource;
  };
  Compiled<void> visit(const Place& place, std::vector<Place>& open);
  Compiled<uint32_t> resource_of(const Place& place);
  Compiled<void> add_anchors(const Place& place);
  void add_children(const Place& place, std::vector<Place>& open) const;
  uint32_t resource_index(const JsonValue& schema) const;
  std::optional<Target> by_pointer(const Resource& resource, std::string_view pointer);
  std::optional<Target> in_resource(const Resource& resource, std::string_view fragment);

  Budget& budget_;
  std::vector<Resource> resources_;
  std::unordered_map<const JsonValue*, uint32_t> resource_of_;  // of every schema
  std::unordered_map<std::string, Target> anchors_;             // by resource URI, "#" and name
  std::unordered_map<std::string, int> dynamic_;                // by name
};

}  // namespace penstock::grammar
