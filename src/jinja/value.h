// Values of the template language, with Python's types and semantics. A value belongs to one
// rendering, except for the constants of a parsed template, and is used by one thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace penstock::jinja {

class Runtime;

// The exception of a failed template. Thrown only inside the interpreter; ChatTemplate converts it
// to an Error.
struct Failure {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string type;  // name of Python's exception; empty: none
  std::string message;
  int line = 0;  // 0: not yet known
};
[[noreturn]] void fail(std::string type, std::string message);
// Fails for a limit that this template and context always reach.
[[noreturn]] void fail_limit(std::string message);

enum class Kind : uint8_t {
  kMissing,  // an unbound variable or an omitted argument; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kIterator,
  kDictView,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
};

struct Budget {
  int64_t live_bytes = 0;
};

// The base of objects that values point to. depth: 1 + the maximum depth of the contents, which
// bounds recursion over values and their destruction (kMaxDepth). budget: may be null (constants of
// the template).
struct Object {
  Object(Budget* budget, size_t bytes, int depth);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  const int depth;

 private:
  Budget* const budget_;
  const size_t bytes_;
};
inline constexpr int kMaxDepth = 200;

struct Value {
  Kind kind = Kind::kMissing;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
  };
  std::shared_ptr<Object> object;

  static Value none();
  static Value of(bool b);
  static Value of(int64_t i);
  static Value of(double f);

  bool is(Kind k) const { return kind == k; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  // is_integral()
  int64_t as_int() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double as_double() const {
    return kind == Kind::kFloat ? real : static_cast<double>(as_int());
  }  // is_number()
  const std::string& text() const;          // kString
  const std::vector<Value>& items() const;  // kList, kTuple
  int depth() const { return object == nullptr ? 0 : object->depth; }
};

using Pairs = std::vector<std::pair<Value, Value>>;

struct Undefined : Object {
  Undefined(Budget* budget, std::string hint, std::string owner, Value name, bool unsafe);
  std::string message() const;
  const std::string hint;  // the complete message, or empty
  // type that has no attribute `name`; empty for a variable
  const std::string owner;
  const Value name;
  const bool unsafe;  // its use is a SecurityError
};

struct String : Object {
  String(Budget* budget, std::string text, bool markup);
  size_t length() const;  // number of code points
  const std::string text;
  const bool markup;  // Markup: + escapes the other operand

 private:
  mutable std::atomic<int64_t> length_{-1};
};

struct List : Object {  // a list or tuple; immutable in the sandbox
  List(Budget* budget, std::vector<Value> items, int depth);
  const std::vector<Value> items;
  // a result of groupby: a tuple with .grouper and .list
  bool is_group = false;
};

// A dict in insertion order; also the attributes of a namespace.
struct Dict : Object {
  Dict(Budget* budget, Pairs items, int depth);
  const Value* find(Runtime& rt, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Runtime& rt, const Value& key, Value value);
  Pairs items;

 private:
  const Value* find_hashed(Runtime& rt, const Value& key, size_t hash) const;
  // Hash -> position; built when there are many items.
  mutable std::unordered_multimap<size_t, size_t> index_;
};

struct Range : Object {
  Range(Budget* budget, int64_t start, int64_t stop, int64_t step);
  int64_t length() const;
  const int64_t start, stop, step;
};

class Iter {
 public:
  virtual ~Iter() = default;
  virtual bool next(Runtime& rt, Value& out) = 0;  // false: exhausted
};

struct Iterator : Object {  // a generator or similar, consumed once
  Iterator(Budget* budget, std::unique_ptr<Iter> iter, const char* type_name, int depth);
  const std::unique_ptr<Iter> iter;
  const char* const type_name;
};

struct DictView : Object {
  enum class What { kKeys, kValues, kItems };
  DictView(Budget* budget, std::shared_ptr<Dict> dict, What what);
  const std::shared_ptr<Dict> dict;
  const What what;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  const Value* find(std::string_view name) const;
  // Returns a value for each of params, kMissing for omitted ones. Fails as Python does for wrong
  // arguments. required: number of leading params that must be given.
  std::vector<Value> bind(std::string_view function, const std::vector<const char*>& params,
                          size_t required) const;
  void no_keywords(std::string_view function) const;
};

struct Function : Object {
  using Body = std::function<Value(Runtime&, const Args&)>;
  Function(Budget* budget, std::string name, Body body, int depth);
  const std::string name;
  const Body body;
};

struct Cycler : Object {
  Cycler(Budget* budget, std::vector<Value> items, int depth);
  const std::vector<Value> items;
  size_t position = 0;
};

const char* type_name(const Value& value);  // Python's type(value).__name__
// "list object", as jinja2 names it in messages
std::string owner_name(const Value& value);

template <class T>
T& as(const Value& value) {
  return static_cast<T&>(*value.object);
}

}  // namespace penstock::jinja
