#include "grammar/schema/references.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace penstock::grammar {
namespace {

// Keywords whose value is a schema, a list of schemas, or an object of schemas.
constexpr std::string_view kOne[] = {"additionalItems",
                                     "additionalProperties",
                                     "contains",
                                     "contentSchema",
                                     "else",
                                     "if",
                                     "items",
                                     "not",
                                     "propertyNames",
                                     "then",
                                     "unevaluatedItems",
                                     "unevaluatedProperties"};
constexpr size_t kMaxUri = 2048;      // bytes of an identifier
constexpr size_t kMaxNamed = 10'000;  // schemas with an identifier or an anchor

constexpr std::string_view kMany[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view kNamed[] = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::string_view text_of(const JsonValue& schema, std::string_view key) {
  const JsonValue* value = schema.find(key);
  return value != nullptr && value->is_string() ? std::string_view(value->string)
                                                : std::string_view();
}

std::string_view without_fragment(std::string_view uri) { return uri.substr(0, uri.find('#')); }

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    const std::string_view digits = text.substr(i).substr(0, 3);
    const bool escape =
        digits.size() == 3 && digits[0] == '%' &&
        std::from_chars(digits.data() + 1, digits.data() + 3, byte, 16).ptr == digits.data() + 3;
    out += escape ? static_cast<char>(byte) : text[i];
    i += escape ? 2 : 0;
  }
  return out;
}

// Decodes "~0" to "~" and "~1" to "/".
std::string unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

struct UriParts {
  std::string_view scheme, authority, path;
  bool has_authority = false;
};

UriParts split_uri(std::string_view uri) {
  UriParts parts;
  uri = without_fragment(uri);
  const size_t colon = uri.find(':');
  if (colon != std::string_view::npos && colon > 0 && uri.find('/') > colon) {
    parts.scheme = uri.substr(0, colon);
    uri.remove_prefix(colon + 1);
  }
  if (uri.starts_with("//")) {
    const size_t end = std::min(uri.find('/', 2), uri.size());
    parts.authority = uri.substr(2, end - 2);
    parts.has_authority = true;
    uri.remove_prefix(end);
  }
  parts.path = uri;
  return parts;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  bool slash_last = false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    slash_last = segment == "." || segment == "..";
    if (segment == "..") {
      if (kept.size() > 1) kept.pop_back();
    } else if (segment != ".") {
      kept.push_back(segment);
    }
    begin = end + 1;
  }
  std::string out = fmt::format("{}", fmt::join(kept, "/"));
  return slash_last ? out + "/" : out;
}

}  // namespace

std::optional<Draft> draft_of(std::string_view uri) {
  while (uri.ends_with('#')) uri.remove_suffix(1);
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  }
  constexpr std::pair<std::string_view, Draft> known[] = {
      {"json-schema.org/draft-04/schema", Draft::k4},
      {"json-schema.org/draft-06/schema", Draft::k6},
      {"json-schema.org/draft-07/schema", Draft::k7},
      {"json-schema.org/draft/2019-09/schema", Draft::k2019},
      {"json-schema.org/draft/2020-12/schema", Draft::k2020},
      {"json-schema.org/schema", Draft::kUnstated}};
  for (const auto& [name, draft] : known) {
    if (uri == name) return draft;
  }
  return std::nullopt;
}

std::string resolve_uri(std::string_view base, std::string_view reference) {
  const UriParts to = split_uri(reference), from = split_uri(base);
  if (!to.scheme.empty()) return std::string(without_fragment(reference));
  const auto build = [&](const UriParts& authority, std::string path) {
    std::string out = from.scheme.empty() ? "" : std::string(from.scheme) + ":";
    if (authority.has_authority) out += "//" + std::string(authority.authority);
    return out + path;
  };
  if (to.has_authority) return build(to, without_dots(to.path));
  if (to.path.empty()) return std::string(without_fragment(base));
  if (to.path.starts_with('/')) return build(from, without_dots(to.path));
  const size_t slash = from.path.rfind('/');
  const std::string folder = slash == std::string_view::npos
                                 ? (from.has_authority ? "/" : "")
                                 : std::string(from.path.substr(0, slash + 1));
  return build(from, without_dots(folder + std::string(to.path)));
}

Compiled<void> References::index(const JsonValue& document) {
  const std::string_view stated = text_of(document, "$schema");
  const auto draft = document.find("$schema") == nullptr ? Draft::kUnstated : draft_of(stated);
  if (!draft) {
    return refuse(
        RefusalKind::kUnsupported, "#/$schema",
        fmt::format("\"{}\" is not known here: drafts 4, 6, 7, 2019-09 and 2020-12 are", stated),
        "$schema");
  }
  resources_.push_back(
      {std::string(without_fragment(text_of(document, *draft == Draft::k4 ? "id" : "$id"))),
       &document,
       {},
       *draft});
  resource_of_[&document] = 0;
  std::vector<Place> open{{&document, {}, 0}};
  while (!open.empty()) {
    const Place place = std::move(open.back());
    open.pop_back();
    if (auto done = visit(place, open); !done) return done;
  }
  return {};
}

Compiled<void> References::visit(const Place& place, std::vector<Place>& open) {
  if (!place.schema->is_object()) return {};
  auto resource = resource_of(place);
  if (!resource) return tl::unexpected(std::move(resource).error());
  const Place here{place.schema, place.where, *resource};
  resource_of_[place.schema] = *resource;
  if (auto done = add_anchors(here); !done) return done;
  add_children(here, open);
  return {};
}

// Returns the resource of a schema, creating one if it has its own identifier.
Compiled<uint32_t> References::resource_of(const Place& place) {
  const Resource around = resources_[place.resource];
  Draft draft = around.draft;
  const bool old_id =
      draft == Draft::k4 || (draft == Draft::kUnstated && place.schema->find("$id") == nullptr);
  const std::string_view id = text_of(*place.schema, old_id ? "id" : "$id");
  // siblings of $ref are ignored
  const bool hidden = draft <= Draft::k7 && place.schema->find("$ref") != nullptr;
  if (place.schema == around.root || hidden || id.empty() || id.starts_with('#'))
    return place.resource;
  if (const std::string_view stated = text_of(*place.schema, "$schema"); !stated.empty()) {
    const auto own = draft_of(stated);
    if (!own)
      return refuse(RefusalKind::kUnsupported, place.where.at("$schema").text(),
                    fmt::format("\"{}\" is not known here", stated), "$schema");
    draft = *own;
  }
  std::string uri = resolve_uri(around.uri, id);
  if (uri.size() > kMaxUri || resources_.size() >= kMaxNamed)
    return refuse(RefusalKind::kTooLarge, place.where.text(),
                  "identifiers are too long, or too many");
  resources_.push_back({std::move(uri), place.schema, place.where, draft});
  return static_cast<uint32_t>(resources_.size() - 1);
}

Compiled<void> References::add_anchors(const Place& place) {
  const Resource& resource = resources_[place.resource];
  const auto add = [&](std::string_view name) {
    if (!name.empty())
      anchors_.emplace(resource.uri + "#" + std::string(name), Target{place.schema, place.where});
  };
  if (resource.draft <= Draft::k7 || resource.draft == Draft::kUnstated) {
    for (const char* key : {"$id", "id"}) {
      if (const std::string_view id = text_of(*place.schema, key); id.starts_with('#'))
        add(id.substr(1));
    }
  }
  if (anchors_.size() > kMaxNamed)
    return refuse(RefusalKind::kTooLarge, place.where.text(), "there are too many anchors");
  if (resource.draft <= Draft::k7) return {};
  add(text_of(*place.schema, "$anchor"));
  const std::string_view dynamic = text_of(*place.schema, "$dynamicAnchor");
  add(dynamic);
  if (!dynamic.empty()) ++dynamic_[std::string(dynamic)];
  const JsonValue* recursive = place.schema->find("$recursiveAnchor");
  if (recursive != nullptr && recursive->kind == JsonValue::Kind::kTrue) ++dynamic_[""];
  return {};
}

void References::add_children(const Place& place, std::vector<Place>& open) const {
  for (const JsonMember& member : place.schema->members) {
    const JsonValue& value = member.value;
    const bool one = value.is_object() && is_one_of(member.key, kOne);
    const bool list = (value.is_array() && is_one_of(member.key, kMany)) ||
                      (value.is_object() && is_one_of(member.key, kNamed));
    if (!one && !list) continue;
    const JsonPointer where = place.where.at(member.key);
    if (one) open.push_back({&value, where, place.resource});
    for (size_t i = 0; list && i < value.members.size(); ++i) {
      const JsonMember& inner = value.members[i];
      open.push_back(
          {&inner.value, value.is_array() ? where.at(i) : where.at(inner.key), place.resource});
    }
  }
}

uint32_t References::resource_index(const JsonValue& schema) const {
  const auto it = resource_of_.find(&schema);
  return it == resource_of_.end() ? 0 : it->second;
}

Draft References::draft(const JsonValue& schema) const {
  return resources_[resource_index(schema)].draft;
}

bool References::base_depends_on_draft(const JsonValue& schema) const {
  const bool is_root =
      &schema == resources_[resource_index(schema)].root && resource_index(schema) == 0;
  return !is_root && schema.find("$ref") != nullptr &&
         !(text_of(schema, "$id").empty() && text_of(schema, "id").empty());
}

int References::n_dynamic(std::string_view anchor) const {
  const auto it = dynamic_.find(std::string(anchor));
  return it == dynamic_.end() ? 0 : it->second;
}

std::optional<Target> References::by_pointer(const Resource& resource, std::string_view pointer) {
  Target at{resource.root, resource.where};
  while (!pointer.empty()) {
    if (pointer.front() != '/') return std::nullopt;
    pointer.remove_prefix(1);
    const std::string_view escaped = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(escaped.size());
    const std::string token = unescaped(escaped);
    if (!budget_.spend(at.schema->members.size())) return std::nullopt;
    if (at.schema->is_array()) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
      if (error != std::errc() || end != token.data() + token.size() ||
          index >= at.schema->members.size())
        return std::nullopt;
      at.schema = &at.schema->members[index].value;
    } else {
      at.schema = at.schema->find(token);
    }
    if (at.schema == nullptr) return std::nullopt;
    at.where = at.where.at(token);
  }
  return at;
}

std::optional<Target> References::in_resource(const Resource& resource, std::string_view fragment) {
  if (fragment.empty()) return Target{resource.root, resource.where};
  if (fragment.front() == '/') return by_pointer(resource, fragment);
  const auto it = anchors_.find(resource.uri + "#" + std::string(fragment));
  return it == anchors_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<Target> References::resolve(const JsonValue& schema, std::string_view reference) {
  const Resource& own = resources_[resource_index(schema)];
  const size_t hash = reference.find('#');
  const std::string fragment =
      hash == std::string_view::npos ? "" : percent_decoded(reference.substr(hash + 1));
  const std::string uri = resolve_uri(own.uri, reference.substr(0, hash));
  if (!budget_.spend(resources_.size() + reference.size())) return std::nullopt;
  for (const Resource& resource : resources_) {
    if (resource.uri != uri) continue;
    if (auto found = in_resource(resource, fragment)) return found;
  }
  // For identifiers that were not meant as bases: resolves the pointer from the document's root.
  if (hash == 0 && fragment.starts_with('/')) return by_pointer(resources_.front(), fragment);
  return std::nullopt;
}

}  // namespace penstock::grammar
