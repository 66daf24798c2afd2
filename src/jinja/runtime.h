// The runtime of one rendering: limits, construction of values, and Python's object protocol on
// them.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace penstock::jinja {

// maximum number of items of a list made by a template
inline constexpr size_t kMaxItems = size_t{1} << 20;
inline constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox

struct Limits {
  int64_t steps = 0;  // work, see Runtime::step()
  // bytes of any one string, the output included
  size_t string_bytes = 0;
  int64_t live_bytes = 0;
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  ~Runtime() { release(); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Counts n steps of work, each at most some 100 ns: an expression, 8 items of a list, 64 bytes
  // copied or searched, 16 bytes read character by character, or one character converted. Throws
  // Failure when the limit is exceeded, or when the work of this thread is cancelled (base/work.h).
  void step(size_t n = 1);
  // Count the steps of reading a function's arguments character by character.
  void read(const Value& value);
  void read(const Args& args);
  size_t max_string() const { return limits_.string_bytes; }
  // checks the size of a string before it is made
  void check_size(size_t bytes) const;
  // checks the number of items of a list before it is made
  void check_items(size_t items) const;
  void append(std::string& out, std::string_view text) {
    check_size(out.size() + text.size());
    step(text.size() / 64);
    out.append(text);
  }

  Value string(std::string text, bool markup = false);
  Value string_like(const Value& model, std::string text);  // the result is Markup if `model` is
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value group(Value grouper, Value list);
  Value dict(Pairs items);  // REQUIRES: keys are hashable and unique
  Value name_space(Pairs items);
  Value range(int64_t start, int64_t stop, int64_t step);
  Value iterator(std::unique_ptr<Iter> iter, const char* type_name, int depth);
  std::unique_ptr<Iter> lazy(std::function<bool(Runtime&, Value&)> next);
  Value function(std::string name, Function::Body body, int depth = 0);
  Value undefined(std::string hint);
  Value undefined_name(std::string_view name);
  Value undefined_attribute(const Value& owner, const Value& name);
  Value unsafe_attribute(const Value& owner, const std::string& name);

  template <class T, class... Rest>
  std::shared_ptr<T> make(Rest&&... rest) {
    auto object = std::make_shared<T>(&budget_, std::forward<Rest>(rest)...);
    if (budget_.live_bytes > limits_.live_bytes) fail_limit("the template holds too much memory");
    step();
    return object;
  }

  // Registers a function that runs when the rendering ends. It empties objects that may be part of
  // a reference cycle (namespaces, captured variables).
  void at_end(std::function<void()> release) { releases_.push_back(std::move(release)); }
  void release();
  Budget& budget() { return budget_; }

  int line = 0;  // line of the statement that is being run
  std::tm now{};

 private:
  // Declared first, since objects return their bytes to it when they are destroyed.
  Budget budget_;
  Limits limits_;
  int64_t steps_ = 0;
  std::vector<std::function<void()>> releases_;
};

Value from_object(Kind kind, std::shared_ptr<Object> object);
int max_depth(const std::vector<Value>& values);

// Fails as jinja2 does when an undefined value is used for more than printing, testing or
// iterating.
[[noreturn]] void fail_undefined(const Value& value);

bool truthy(Runtime& rt, const Value& value);
bool equals(Runtime& rt, const Value& a, const Value& b);
// A < b; TypeError if the types cannot be ordered.
bool less(Runtime& rt, const Value& a, const Value& b, const char* op = "<");
bool less_equal(Runtime& rt, const Value& a, const Value& b, const char* op = "<=");
size_t hash_of(Runtime& rt, const Value& value);  // TypeError if the type is unhashable
bool identical(const Value& a, const Value& b);   // Python's `is`
bool contains(Runtime& rt, const Value& item, const Value& container);
bool has_length(const Value& value);
int64_t length_of(Runtime& rt, const Value& value);
bool is_iterable(const Value& value);
bool is_callable(const Value& value);

// Returns the position of the first needle at or after `from`, in linear time; npos: none.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
// position of the last needle; npos: none
size_t rfind_text(std::string_view text, std::string_view needle);

std::unique_ptr<Iter> iterate(Runtime& rt, const Value& value);
std::vector<Value> to_vector(Runtime& rt, const Value& value);

}  // namespace penstock::jinja
