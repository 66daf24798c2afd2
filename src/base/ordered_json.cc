#include "base/ordered_json.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Members = std::vector<Json::object_t::value_type>;

Members& members_of(Json& object) { return object.get_ref<Json::object_t&>(); }

// Builds a value from parser events. An open container is the last element of its parent, which
// does not grow meanwhile, so that pointers to open containers stay valid.
class OrderedBuilder {
 public:
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    drop_repeated_members(*open_.back());
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  bool put(Json value) {
    last_ = &place(std::move(value));
    return true;
  }
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object())
      return add_member(*open_.back(), std::move(key_), std::move(value));
    return open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
  }
  bool open(Json value) {
    put(std::move(value));
    open_.push_back(last_);
    return true;
  }

  Json root_;
  Json* last_ = nullptr;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

Json parse_ordered(std::string_view text) {
  OrderedBuilder builder;
  const bool ok = Json::sax_parse(text.begin(), text.end(), &builder);
  return ok ? builder.take() : Json(Json::value_t::discarded);
}

void reserve_members(Json& object, size_t n) {
  Members& members = members_of(object);
  if (members.capacity() >= n) return;
  Members larger;
  larger.reserve(n);
  for (auto& [name, value] : members) larger.emplace_back(name, std::move(value));
  members.swap(larger);
}

Json& add_member(Json& object, std::string name, Json value) {
  // Initial capacity of an object: a larger one would exceed the memory estimate of many small
  // objects (server/api/json_reader.cc).
  constexpr size_t kFirstMembers = 2;
  Members& members = members_of(object);
  if (members.size() == members.capacity())
    reserve_members(object, std::max<size_t>(kFirstMembers, 2 * members.size()));
  return members.emplace_back(std::move(name), std::move(value)).second;
}

void drop_repeated_members(Json& object) {
  Members& members = members_of(object);
  std::vector<uint32_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name = [&](uint32_t i) -> const std::string& { return members[i].first; };
  std::ranges::stable_sort(order, std::less<>(), name);
  bool repeated = false;
  for (size_t i = 1, first = 0; i < order.size(); ++i) {
    if (name(order[i]) != name(order[first])) {
      first = i;
      continue;
    }
    repeated = true;
    members[order[first]].second = std::move(members[order[i]].second);
    members[order[i]].second = Json(Json::value_t::discarded);
  }
  if (!repeated) return;
  Json kept = Json::object();
  Members& rest = members_of(kept);
  rest.reserve(members.size());
  for (auto& [key, value] : members) {
    if (!value.is_discarded()) rest.emplace_back(key, std::move(value));
  }
  object = std::move(kept);
}

size_t count_values(std::string_view text) {
  size_t n = 1;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else {
      quoted = c == '"';
      n += c == ',' || c == '[' || c == '{';
    }
  }
  return n;
}

}  // namespace penstock
