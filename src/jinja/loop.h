// The object `loop` of a for loop.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "jinja/runtime.h"

namespace penstock::jinja {

class Loop : public Object {
 public:
  // Renders the loop's body over another iterable, one level deeper; empty if the loop is not
  // recursive.
  using Recurse = std::function<Value(Runtime&, const Value& iterable, int depth0)>;

  // filtered: the loop has a test, so that the iterable's length is not the loop's.
  Loop(Budget* budget, Value iterable, bool filtered, std::unique_ptr<Iter> iter, int depth0,
       Recurse recurse);

  bool next(Runtime& rt, Value& out);
  // releases the values that it holds; a template may keep the loop itself
  void finish();
  Value member(Runtime& rt, const std::string& name, const Value& self);
  Value call(Runtime& rt, const Args& args);

 private:
  int64_t length(Runtime& rt);
  bool peek(Runtime& rt);

  Value iterable_;
  const bool filtered_;
  std::unique_ptr<Iter> iter_;
  const int depth0_;
  const Recurse recurse_;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  bool has_after_ = false;
  Value after_, current_, before_, last_changed_;
};

Value loop_member(Runtime& rt, const Value& loop, const std::string& name);

}  // namespace penstock::jinja
