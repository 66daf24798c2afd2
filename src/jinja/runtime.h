// One rendering: its limits, the making of values, and what Python's object protocol says about them.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace penstock::jinja {

inline constexpr size_t kMaxItems = size_t{1} << 20;  // items of one list made by a template
inline constexpr int64_t kMaxRange = 100'000;         // as jinja2's sandbox

struct Limits {
  int64_t steps = 0;        // see Runtime::step()
  size_t string_bytes = 0;  // any one string, the output included
  int64_t live_bytes = 0;
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  ~Runtime() { release(); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Counts work, in steps of up to some 100 ns: an expression, 8 items of a list, 64 bytes that are copied or searched, 16 that
  // are looked at character by character, one whose character becomes another. Fails when the template has used its share.
  // Gives way to whoever cancels the work of this thread.
  void step(size_t n = 1);
  // Steps of looking at what a function is called with, character by character.
  void read(const Value& value);
  void read(const Args& args);
  size_t max_string() const { return limits_.string_bytes; }
  void check_size(size_t bytes) const;   // of a string about to be made
  void check_items(size_t items) const;  // of a list about to be made
  void append(std::string& out, std::string_view text) {
    check_size(out.size() + text.size());
    step(text.size() / 64);
    out.append(text);
  }

  Value string(std::string text, bool markup = false);
  Value string_like(const Value& model, std::string text);  // Markup when the model is
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value group(Value grouper, Value list);
  Value dict(Pairs items);  // keys hashable and unique
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

  // What a template can close a cycle through (namespaces, captured variables) is emptied when the rendering
  // ends.
  void at_end(std::function<void()> release) { releases_.push_back(std::move(release)); }
  void release();
  Budget& budget() { return budget_; }

  int line = 0;  // of the statement being run
  std::tm now{};

 private:
  // Declared first: objects give their bytes back to it when they go.
  Budget budget_;
  Limits limits_;
  int64_t steps_ = 0;
  std::vector<std::function<void()>> releases_;
};

Value from_object(Kind kind, std::shared_ptr<Object> object);
int max_depth(const std::vector<Value>& values);

// Using an undefined value for more than printing, testing or iterating.
[[noreturn]] void fail_undefined(const Value& value);

bool truthy(Runtime& rt, const Value& value);
bool equals(Runtime& rt, const Value& a, const Value& b);
bool less(Runtime& rt, const Value& a, const Value& b, const char* op = "<");  // a < b, else TypeError
bool less_equal(Runtime& rt, const Value& a, const Value& b, const char* op = "<=");
size_t hash_of(Runtime& rt, const Value& value);  // TypeError when unhashable
bool identical(const Value& a, const Value& b);   // is
bool contains(Runtime& rt, const Value& item, const Value& container);
bool has_length(const Value& value);
int64_t length_of(Runtime& rt, const Value& value);
bool is_iterable(const Value& value);
bool is_callable(const Value& value);

// Position of needle at or after from, in linear time; npos when there is none.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view needle);  // the last one

std::unique_ptr<Iter> iterate(Runtime& rt, const Value& value);
std::vector<Value> to_vector(Runtime& rt, const Value& value);

}  // namespace penstock::jinja
