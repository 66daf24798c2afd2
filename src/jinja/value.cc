#include "jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/print.h"
#include "jinja/runtime.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {
constexpr size_t kIndexFrom = 9;  // smaller dicts are searched linearly

size_t bytes_of(size_t n, size_t each) { return 64 + n * each; }
}  // namespace

void fail(std::string type, std::string message) {
  throw Failure{ErrorCode::kInvalidArgument, std::move(type), std::move(message), 0};
}

void fail_limit(std::string message) {
  throw Failure{ErrorCode::kInvalidArgument, "", std::move(message), 0};
}

Object::Object(Budget* budget, size_t bytes, int depth)
    : depth(depth), budget_(budget), bytes_(bytes) {
  if (depth > kMaxDepth) fail_limit(fmt::format("values nested deeper than {}", kMaxDepth));
  if (budget_ != nullptr) budget_->live_bytes += static_cast<int64_t>(bytes_);
}

Object::~Object() {
  if (budget_ != nullptr) budget_->live_bytes -= static_cast<int64_t>(bytes_);
}

Value Value::none() {
  Value v;
  v.kind = Kind::kNone;
  return v;
}

Value Value::of(bool b) {
  Value v;
  v.kind = Kind::kBool;
  v.boolean = b;
  return v;
}

Value Value::of(int64_t i) {
  Value v;
  v.kind = Kind::kInt;
  v.integer = i;
  return v;
}

Value Value::of(double f) {
  Value v;
  v.kind = Kind::kFloat;
  v.real = f;
  return v;
}

const std::string& Value::text() const { return as<String>(*this).text; }
const std::vector<Value>& Value::items() const { return as<List>(*this).items; }

Undefined::Undefined(Budget* budget, std::string hint, std::string owner, Value name, bool unsafe)
    : Object(budget, bytes_of(hint.size() + owner.size(), 1), 0),
      hint(std::move(hint)),
      owner(std::move(owner)),
      name(std::move(name)),
      unsafe(unsafe) {}

std::string Undefined::message() const {
  if (!hint.empty()) return hint;
  const std::string quoted = name.is(Kind::kString) ? quote(name.text()) : plain_number(name);
  if (owner.empty()) return quoted + " is undefined";
  if (!name.is(Kind::kString)) return fmt::format("{} has no element {}", owner, quoted);
  return fmt::format("'{}' has no attribute {}", owner, quoted);
}

String::String(Budget* budget, std::string text, bool markup)
    : Object(budget, bytes_of(text.size(), 1), 0), text(std::move(text)), markup(markup) {}

size_t String::length() const {
  int64_t n = length_.load(std::memory_order_relaxed);
  if (n < 0) {
    n = static_cast<int64_t>(count_code_points(text));
    length_.store(n, std::memory_order_relaxed);
  }
  return static_cast<size_t>(n);
}

List::List(Budget* budget, std::vector<Value> items, int depth)
    : Object(budget, bytes_of(items.size(), sizeof(Value)), depth), items(std::move(items)) {}

Dict::Dict(Budget* budget, Pairs items, int depth)
    : Object(budget, bytes_of(items.size(), 3 * sizeof(Value)), depth), items(std::move(items)) {}

const Value* Dict::find_hashed(Runtime& rt, const Value& key, size_t hash) const {
  if (items.size() < kIndexFrom) {
    for (const auto& [k, v] : items) {
      if (equals(rt, k, key)) return &v;
    }
    return nullptr;
  }
  for (size_t i = index_.size(); i < items.size(); ++i)
    index_.emplace(hash_of(rt, items[i].first), i);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (equals(rt, items[it->second].first, key)) return &items[it->second].second;
  }
  return nullptr;
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
  return find_hashed(rt, key, hash_of(rt, key));
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.is(Kind::kString) && k.text() == key) return &v;
  }
  return nullptr;
}

void Dict::set(Runtime& rt, const Value& key, Value value) {
  if (const Value* old = find(rt, key)) {
    *const_cast<Value*>(old) = std::move(value);
  } else {
    items.emplace_back(key, std::move(value));
  }
}

Range::Range(Budget* budget, int64_t start, int64_t stop, int64_t step)
    : Object(budget, 64, 0), start(start), stop(stop), step(step) {}

int64_t Range::length() const {
  // The difference of two int64 fits uint64.
  const auto gap = [](int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  };
  uint64_t n = 0;
  if (step > 0 && start < stop) n = (gap(start, stop) - 1) / static_cast<uint64_t>(step) + 1;
  if (step < 0 && start > stop) n = (gap(stop, start) - 1) / (0 - static_cast<uint64_t>(step)) + 1;
  return n > INT64_MAX ? INT64_MAX : static_cast<int64_t>(n);
}

Iterator::Iterator(Budget* budget, std::unique_ptr<Iter> iter, const char* type_name, int depth)
    : Object(budget, 128, depth), iter(std::move(iter)), type_name(type_name) {}

DictView::DictView(Budget* budget, std::shared_ptr<Dict> dict, What what)
    : Object(budget, 64, dict->depth), dict(std::move(dict)), what(what) {}

Function::Function(Budget* budget, std::string name, Body body, int depth)
    : Object(budget, 128, depth), name(std::move(name)), body(std::move(body)) {}

Cycler::Cycler(Budget* budget, std::vector<Value> items, int depth)
    : Object(budget, bytes_of(items.size(), sizeof(Value)), depth), items(std::move(items)) {}

const Value* Args::find(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Args::no_keywords(std::string_view function) const {
  if (!keyword.empty()) fail("TypeError", fmt::format("{}() takes no keyword arguments", function));
}

std::vector<Value> Args::bind(std::string_view function, const std::vector<const char*>& params,
                              size_t required) const {
  if (positional.size() > params.size()) {
    fail("TypeError", fmt::format("{}() takes at most {} arguments ({} given)", function,
                                  params.size(), positional.size()));
  }
  std::vector<Value> bound(positional);
  bound.resize(params.size());
  for (const auto& [key, value] : keyword) {
    const auto it = std::find(params.begin(), params.end(), std::string_view(key));
    if (it == params.end()) {
      fail("TypeError", fmt::format("{}() got an unexpected keyword argument '{}'", function, key));
    }
    Value& slot = bound[static_cast<size_t>(it - params.begin())];
    if (!slot.is(Kind::kMissing)) {
      fail("TypeError", fmt::format("{}() got multiple values for argument '{}'", function, key));
    }
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].is(Kind::kMissing)) {
      fail("TypeError",
           fmt::format("{}() missing 1 required positional argument: '{}'", function, params[i]));
    }
  }
  return bound;
}

const char* type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing: return "missing";
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return as<String>(value).markup ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kRange: return "range";
    case Kind::kIterator: return as<Iterator>(value).type_name;
    case Kind::kDictView: {
      const auto what = as<DictView>(value).what;
      return what == DictView::What::kKeys     ? "dict_keys"
             : what == DictView::What::kValues ? "dict_values"
                                               : "dict_items";
    }
    case Kind::kFunction: return "function";
    case Kind::kMacro: return "Macro";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCycler: return "Cycler";
  }
  return "object";
}

std::string owner_name(const Value& value) {
  switch (value.kind) {
    case Kind::kNone: return "None";
    case Kind::kNamespace: return "jinja2.utils.Namespace object";
    case Kind::kCycler: return "jinja2.utils.Cycler object";
    case Kind::kMacro:
    case Kind::kLoop: return fmt::format("jinja2.runtime.{} object", type_name(value));
    case Kind::kString: return as<String>(value).markup ? "markupsafe.Markup object" : "str object";
    default: return fmt::format("{} object", type_name(value));
  }
}

}  // namespace penstock::jinja
