#include "jinja/loop.h"

namespace penstock::jinja {

Loop::Loop(Budget* budget, Value iterable, bool filtered, std::unique_ptr<Iter> iter, int depth0,
           Recurse recurse)
    : Object(budget, 256, 0),
      iterable_(std::move(iterable)),
      filtered_(filtered),
      iter_(std::move(iter)),
      depth0_(depth0),
      recurse_(std::move(recurse)) {}

bool Loop::next(Runtime& rt, Value& out) {
  if (has_after_) {
    out = std::move(after_);
    has_after_ = false;
  } else if (!iter_->next(rt, out)) {
    return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = out;
  return true;
}

void Loop::finish() {
  iterable_ = after_ = current_ = before_ = last_changed_ = Value();
  iter_ = nullptr;
  has_after_ = false;
}

bool Loop::peek(Runtime& rt) {
  if (!has_after_ && iter_ != nullptr) has_after_ = iter_->next(rt, after_);
  return has_after_;
}

int64_t Loop::length(Runtime& rt) {
  if (length_) return *length_;
  if (!filtered_ && has_length(iterable_)) {
    length_ = length_of(rt, iterable_);
    return *length_;
  }
  // Reads the rest ahead, as jinja2 does.
  std::vector<Value> rest;
  if (iter_ != nullptr) {
    for (Value item; iter_->next(rt, item);) {
      rt.check_items(rest.size() + 1);
      rest.push_back(std::move(item));
    }
  }
  length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (has_after_ ? 1 : 0);
  iter_ = iterate(rt, rt.list(std::move(rest)));
  return *length_;
}

Value Loop::member(Runtime& rt, const std::string& name, const Value& self) {
  if (name == "index0") return Value::of(index0_);
  if (name == "index") return Value::of(index0_ + 1);
  if (name == "first") return Value::of(index0_ == 0);
  if (name == "last") return Value::of(!peek(rt));
  if (name == "length") return Value::of(length(rt));
  if (name == "revindex") return Value::of(length(rt) - index0_);
  if (name == "revindex0") return Value::of(length(rt) - index0_ - 1);
  if (name == "depth") return Value::of(int64_t{depth0_} + 1);
  if (name == "depth0") return Value::of(int64_t{depth0_});
  if (name == "previtem")
    return index0_ == 0 || before_.is(Kind::kMissing) ? rt.undefined("there is no previous item")
                                                      : before_;
  if (name == "nextitem") return peek(rt) ? after_ : rt.undefined("there is no next item");
  if (name == "cycle") {
    return rt.function("cycle", [self](Runtime&, const Args& args) {
      if (args.positional.empty()) fail("TypeError", "no items for cycling given");
      args.no_keywords("cycle");
      return args.positional[static_cast<size_t>(as<Loop>(self).index0_) % args.positional.size()];
    });
  }
  if (name == "changed") {
    return rt.function("changed", [self](Runtime& r, const Args& args) {
      args.no_keywords("changed");
      Loop& loop = as<Loop>(self);
      const Value now = r.tuple(args.positional);
      if (!loop.last_changed_.is(Kind::kMissing) && equals(r, loop.last_changed_, now))
        return Value::of(false);
      loop.last_changed_ = now;
      return Value::of(true);
    });
  }
  return Value();
}

Value Loop::call(Runtime& rt, const Args& args) {
  if (recurse_ == nullptr) {
    fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
  }
  return recurse_(rt, args.bind("loop", {"iterable"}, 1)[0], depth0_ + 1);
}

Value loop_member(Runtime& rt, const Value& loop, const std::string& name) {
  return as<Loop>(loop).member(rt, name, loop);
}

}  // namespace penstock::jinja
