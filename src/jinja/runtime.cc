#include "jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/text_hash.h"
#include "base/work.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

class ItemsIter : public Iter {
 public:
  explicit ItemsIter(Value sequence) : sequence_(std::move(sequence)) {}
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    const auto& items = sequence_.items();
    if (position_ >= items.size()) return false;
    out = items[position_++];
    return true;
  }

 private:
  Value sequence_;
  size_t position_ = 0;
};

class TextIter : public Iter {
 public:
  explicit TextIter(Value text) : text_(std::move(text)) {}
  bool next(Runtime& rt, Value& out) override {
    const std::string& text = text_.text();
    if (position_ >= text.size()) return false;
    const size_t start = position_;
    decode(text, position_);
    out = rt.string(text.substr(start, position_ - start));
    return true;
  }

 private:
  Value text_;
  size_t position_ = 0;
};

class DictIter : public Iter {
 public:
  DictIter(std::shared_ptr<Dict> dict, DictView::What what) : dict_(std::move(dict)), what_(what) {}
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    if (position_ >= dict_->items.size()) return false;
    const auto& [key, value] = dict_->items[position_++];
    out = what_ == DictView::What::kKeys     ? key
          : what_ == DictView::What::kValues ? value
                                             : rt.tuple({key, value});
    return true;
  }

 private:
  std::shared_ptr<Dict> dict_;
  DictView::What what_;
  size_t position_ = 0;
};

class RangeIter : public Iter {
 public:
  explicit RangeIter(const Range& range)
      : next_(range.start), step_(range.step), left_(range.length()) {}
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    if (left_ <= 0) return false;
    out = Value::of(next_);
    if (--left_ > 0) next_ += step_;
    return true;
  }

 private:
  int64_t next_, step_, left_;
};

class SharedIter : public Iter {
 public:
  explicit SharedIter(Value iterator) : iterator_(std::move(iterator)) {}
  bool next(Runtime& rt, Value& out) override {
    return as<Iterator>(iterator_).iter->next(rt, out);
  }

 private:
  Value iterator_;
};

class EmptyIter : public Iter {
 public:
  bool next(Runtime&, Value&) override { return false; }
};

class FunctionIter : public Iter {
 public:
  explicit FunctionIter(std::function<bool(Runtime&, Value&)> next) : next_(std::move(next)) {}
  bool next(Runtime& rt, Value& out) override {
    rt.step();
    return next_(rt, out);
  }

 private:
  std::function<bool(Runtime&, Value&)> next_;
};

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.find(rt, item.first);
    return other != nullptr && equals(rt, item.second, *other);
  });
}

// Returns -1, 0, 1, or 2 if one is not a number.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return (a.as_int() > b.as_int()) - (a.as_int() < b.as_int());
  const auto wide = [](const Value& v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.real)
                              : static_cast<long double>(v.as_int());
  };
  const long double x = wide(a), y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return (x > y) - (x < y);
}

[[noreturn]] void fail_order(const Value& a, const Value& b, const char* op) {
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  fail("TypeError", fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                                type_name(a), type_name(b)));
}

// Evaluates < or <=, which differ for equal operands only.
bool ordered(Runtime& rt, const Value& a, const Value& b, const char* op, bool when_equal) {
  rt.step();
  if (a.is_number() && b.is_number()) {
    const int order = compare_numbers(a, b);
    return order == -1 || (order == 0 && when_equal);
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    rt.step(std::min(a.text().size(), b.text().size()) / 64);
    const int order = a.text().compare(b.text());  // UTF-8 preserves the order of code points
    return order < 0 || (order == 0 && when_equal);
  }
  if (a.is_sequence() && a.kind == b.kind) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(rt, x[i], y[i])) return ordered(rt, x[i], y[i], op, when_equal);
    }
    return x.size() < y.size() || (x.size() == y.size() && when_equal);
  }
  fail_order(a, b, op);
}

}  // namespace

void Runtime::step(size_t n) {
  constexpr int64_t kOften = 1024;
  const int64_t before = steps_;
  steps_ += static_cast<int64_t>(n);
  if (before / kOften != steps_ / kOften) give_way();
  if (steps_ > limits_.steps)
    fail_limit(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Runtime::read(const Value& value) {
  if (value.is(Kind::kString)) step(value.text().size() / 16);
}

void Runtime::read(const Args& args) {
  for (const Value& value : args.positional) read(value);
  for (const auto& [name, value] : args.keyword) read(value);
}

void Runtime::check_size(size_t bytes) const {
  if (bytes > limits_.string_bytes) {
    fail_limit(fmt::format("the template makes a text longer than {} bytes", limits_.string_bytes));
  }
}

void Runtime::check_items(size_t items) const {
  if (items > kMaxItems)
    fail_limit(fmt::format("the template makes a list longer than {} items", kMaxItems));
}

void Runtime::release() {
  for (auto& release : releases_) release();
  releases_.clear();
}

Value from_object(Kind kind, std::shared_ptr<Object> object) {
  Value value;
  value.kind = kind;
  value.object = std::move(object);
  return value;
}

int max_depth(const std::vector<Value>& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return depth;
}

Value Runtime::string(std::string text, bool markup) {
  check_size(text.size());
  step(text.size() / 64);
  return from_object(Kind::kString, make<String>(std::move(text), markup));
}

Value Runtime::string_like(const Value& model, std::string text) {
  return string(std::move(text), model.is(Kind::kString) && as<String>(model).markup);
}

Value Runtime::list(std::vector<Value> items) {
  check_items(items.size());
  step(items.size() / 8);
  const int depth = 1 + max_depth(items);
  return from_object(Kind::kList, make<List>(std::move(items), depth));
}

Value Runtime::tuple(std::vector<Value> items) {
  Value value = list(std::move(items));
  value.kind = Kind::kTuple;
  return value;
}

Value Runtime::group(Value grouper, Value list) {
  Value value = tuple({std::move(grouper), std::move(list)});
  as<List>(value).is_group = true;
  return value;
}

Value Runtime::dict(Pairs items) {
  check_items(items.size());
  step(items.size() / 8);
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  return from_object(Kind::kDict, make<Dict>(std::move(items), depth + 1));
}

Value Runtime::name_space(Pairs items) {
  auto object = make<Dict>(std::move(items), 0);
  at_end([object] { object->items.clear(); });
  return from_object(Kind::kNamespace, std::move(object));
}

Value Runtime::range(int64_t start, int64_t stop, int64_t step) {
  return from_object(Kind::kRange, make<Range>(start, stop, step));
}

Value Runtime::iterator(std::unique_ptr<Iter> iter, const char* type_name, int depth) {
  return from_object(Kind::kIterator, make<Iterator>(std::move(iter), type_name, depth));
}

std::unique_ptr<Iter> Runtime::lazy(std::function<bool(Runtime&, Value&)> next) {
  return std::make_unique<FunctionIter>(std::move(next));
}

Value Runtime::function(std::string name, Function::Body body, int depth) {
  return from_object(Kind::kFunction, make<Function>(std::move(name), std::move(body), depth));
}

Value Runtime::undefined(std::string hint) {
  return from_object(Kind::kUndefined, make<Undefined>(std::move(hint), "", Value(), false));
}

Value Runtime::undefined_name(std::string_view name) {
  return from_object(Kind::kUndefined, make<Undefined>("", "", string(std::string(name)), false));
}

Value Runtime::undefined_attribute(const Value& owner, const Value& name) {
  return from_object(Kind::kUndefined, make<Undefined>("", owner_name(owner), name, false));
}

Value Runtime::unsafe_attribute(const Value& owner, const std::string& name) {
  return from_object(
      Kind::kUndefined,
      make<Undefined>(
          fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(owner)),
          "", Value(), true));
}

void fail_undefined(const Value& value) {
  const auto& undefined = as<Undefined>(value);
  fail(undefined.unsafe ? "SecurityError" : "UndefinedError", undefined.message());
}

bool truthy(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.boolean;
    case Kind::kInt: return value.integer != 0;
    case Kind::kFloat: return value.real != 0;
    default: return !has_length(value) || length_of(rt, value) != 0;
  }
}

bool equals(Runtime& rt, const Value& a, const Value& b) {
  rt.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: rt.step(a.text().size() / 64); return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      const auto& x = a.items();
      const auto& y = b.items();
      if (a.object == b.object) return true;
      return x.size() == y.size() &&
             std::equal(x.begin(), x.end(), y.begin(),
                        [&](const Value& p, const Value& q) { return equals(rt, p, q); });
    }
    case Kind::kDict: return a.object == b.object || equal_dicts(rt, as<Dict>(a), as<Dict>(b));
    case Kind::kRange: {
      const auto& x = as<Range>(a);
      const auto& y = as<Range>(b);
      const int64_t n = x.length();
      return n == y.length() && (n == 0 || (x.start == y.start && (n == 1 || x.step == y.step)));
    }
    default: return a.object == b.object;
  }
}

bool less(Runtime& rt, const Value& a, const Value& b, const char* op) {
  return ordered(rt, a, b, op, false);
}
bool less_equal(Runtime& rt, const Value& a, const Value& b, const char* op) {
  return ordered(rt, a, b, op, true);
}

size_t hash_of(Runtime& rt, const Value& value) {
  rt.step();
  switch (value.kind) {
    case Kind::kBool:
    case Kind::kInt: return number_hash(static_cast<uint64_t>(value.as_int()));
    case Kind::kFloat: {
      const double f = value.real;
      if (f == std::floor(f) && std::fabs(f) < 9e18)
        return number_hash(static_cast<uint64_t>(static_cast<int64_t>(f)));
      return number_hash(std::bit_cast<uint64_t>(f));
    }
    case Kind::kString: rt.step(value.text().size() / 64); return text_hash(value.text());
    case Kind::kTuple: {
      size_t hash = value.items().size();
      for (const Value& item : value.items()) hash = number_hash(hash, hash_of(rt, item));
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView: fail("TypeError", fmt::format("unhashable type: '{}'", type_name(value)));
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return static_cast<size_t>(value.kind);
    default: return std::hash<const void*>{}(value.object.get());
  }
}

bool identical(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kMissing:
    case Kind::kNone: return true;
    case Kind::kBool: return a.boolean == b.boolean;
    case Kind::kInt: return a.integer == b.integer;
    case Kind::kFloat: return a.real == b.real;
    case Kind::kString: return a.text() == b.text();
    default: return a.object == b.object;
  }
}

bool contains(Runtime& rt, const Value& item, const Value& container) {
  switch (container.kind) {
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        fail("TypeError",
             fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      rt.step(container.text().size() / 64);
      return find_text(container.text(), item.text()) != std::string::npos;
    case Kind::kDict: return as<Dict>(container).find(rt, item) != nullptr;
    default: break;
  }
  if (!is_iterable(container)) {
    fail("TypeError", fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  const auto iter = iterate(rt, container);
  Value candidate;
  while (iter->next(rt, candidate)) {
    if (equals(rt, candidate, item)) return true;
  }
  return false;
}

bool has_length(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView: return true;
    default: return false;
  }
}

int64_t length_of(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined: return 0;
    case Kind::kString:
      rt.step(value.text().size() / 256);
      return static_cast<int64_t>(as<String>(value).length());
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(as<Dict>(value).items.size());
    case Kind::kDictView: return static_cast<int64_t>(as<DictView>(value).dict->items.size());
    case Kind::kRange: return as<Range>(value).length();
    default: fail("TypeError", fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

bool is_iterable(const Value& value) { return has_length(value) || value.is(Kind::kIterator); }

bool is_callable(const Value& value) {
  // undefined values have a __call__, which fails
  return value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kLoop) ||
         value.is(Kind::kUndefined);
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  if (needle.size() == 1) return text.rfind(needle[0]);
  const std::string backwards(text.rbegin(), text.rend());
  const size_t hit = find_text(backwards, std::string(needle.rbegin(), needle.rend()));
  return hit == std::string_view::npos ? hit : text.size() - hit - needle.size();
}

std::unique_ptr<Iter> iterate(Runtime& rt, const Value& value) {
  rt.step();
  switch (value.kind) {
    case Kind::kUndefined: return std::make_unique<EmptyIter>();
    case Kind::kString: return std::make_unique<TextIter>(value);
    case Kind::kList:
    case Kind::kTuple: return std::make_unique<ItemsIter>(value);
    case Kind::kDict:
      return std::make_unique<DictIter>(std::static_pointer_cast<Dict>(value.object),
                                        DictView::What::kKeys);
    case Kind::kDictView:
      return std::make_unique<DictIter>(as<DictView>(value).dict, as<DictView>(value).what);
    case Kind::kRange: return std::make_unique<RangeIter>(as<Range>(value));
    case Kind::kIterator: return std::make_unique<SharedIter>(value);
    default: fail("TypeError", fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::vector<Value> to_vector(Runtime& rt, const Value& value) {
  if (value.is_sequence()) {
    rt.step(value.items().size() / 8);
    return value.items();
  }
  std::vector<Value> items;
  const auto iter = iterate(rt, value);
  for (Value item; iter->next(rt, item);) {
    rt.check_items(items.size() + 1);
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace penstock::jinja
