// Filters over sequences, mappings and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/filters.h"
#include "jinja/ops.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

Value or_default(const Value& value, Value otherwise) {
  return value.is(Kind::kMissing) ? otherwise : value;
}

using Next = std::function<bool(Runtime&, Value&)>;

// Returns a generator like Python's: nothing runs before the first item is requested. It holds
// source and args.
Value deferred(Runtime& rt, const Value& source, const Args& args,
               std::function<Next(Runtime&)> start) {
  int depth = std::max(source.depth(), max_depth(args.positional));
  for (const auto& [name, value] : args.keyword) depth = std::max(depth, value.depth());
  auto next = std::make_shared<Next>();
  auto iter = rt.lazy([next, start = std::move(start)](Runtime& r, Value& out) {
    if (*next == nullptr) *next = start(r);
    return (*next)(r, out);
  });
  return rt.iterator(std::move(iter), "generator", depth + 1);
}

bool no_items(Runtime&, Value&) { return false; }

Value absolute(Runtime&, const Value& self, const Args& args) {
  args.bind("abs", {}, 0);
  if (!self.is_number())
    fail("TypeError", fmt::format("bad operand type for abs(): '{}'", type_name(self)));
  if (self.is(Kind::kFloat)) return Value::of(std::fabs(self.real));
  return self.as_int() < 0 ? negate(self) : Value::of(self.as_int());
}

Value attr(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_attr", {"name"}, 1);
  if (!a[0].is(Kind::kString)) fail("TypeError", "attribute name must be string");
  if (self.is(Kind::kDict)) {  // attributes only, no items
    const Value method = find_method(rt, self, a[0].text());
    return method.is(Kind::kMissing) ? rt.undefined_attribute(self, a[0]) : method;
  }
  return get_attribute(rt, self, a[0].text());
}

Value batch(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_batch", {"linecount", "fill_with"}, 1);
  const int64_t width = to_index(a[0], "linecount");
  const Value fill = a[1];
  const bool filled = !fill.is(Kind::kMissing) && !fill.is(Kind::kNone);
  return deferred(rt, self, args, [=](Runtime& first) -> Next {
    auto iter = std::shared_ptr<Iter>(iterate(first, self));
    return [=, pending = std::vector<Value>(), done = false](Runtime& r, Value& out) mutable {
      if (done) return false;
      for (Value item; iter->next(r, item);) {
        const bool full = static_cast<int64_t>(pending.size()) == width;
        if (full) out = r.list(std::exchange(pending, {}));
        r.check_items(pending.size() + 1);
        pending.push_back(std::move(item));
        if (full) return true;
      }
      done = true;
      if (pending.empty()) return false;
      if (filled && static_cast<int64_t>(pending.size()) < width) {
        r.check_items(static_cast<size_t>(width));
        pending.resize(static_cast<size_t>(width), fill);
      }
      out = r.list(std::exchange(pending, {}));
      return true;
    };
  });
}

Value slice(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_slice", {"slices", "fill_with"}, 1);
  const int64_t slices = to_index(a[0], "slices");
  const Value fill = a[1];
  const bool filled = !fill.is(Kind::kMissing) && !fill.is(Kind::kNone);
  return deferred(rt, self, args, [=](Runtime& start) -> Next {
    const Value all = start.list(to_vector(start, self));
    if (slices == 0) fail("ZeroDivisionError", "integer modulo by zero");
    return [=, number = int64_t{0}](Runtime& r, Value& out) mutable {
      if (number >= slices) return false;
      const auto n = static_cast<int64_t>(all.items().size());
      const int64_t each = n / slices, longer = n % slices, i = number++;
      const auto begin = all.items().begin() + i * each + std::min(i, longer);
      std::vector<Value> part(begin, begin + each + (i < longer ? 1 : 0));
      if (filled && i >= longer) part.push_back(fill);
      out = r.list(std::move(part));
      return true;
    };
  });
}

Value default_value(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_default", {"default_value", "boolean"}, 0);
  const bool replace = self.is(Kind::kUndefined) || (truthy(rt, a[1]) && !truthy(rt, self));
  if (!replace) return self;
  return a[0].is(Kind::kMissing) ? rt.string("") : a[0];
}

struct Keyed {
  Value key, item;
};

// The argument reverse= of sorted(), which must be an integer.
bool is_reverse(const Value& value) {
  if (value.is(Kind::kMissing)) return false;
  if (!value.is_integral()) {
    fail("TypeError",
         fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  }
  return value.as_int() != 0;
}

std::vector<Value> sorted(Runtime& rt, std::vector<Keyed> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& x, const Keyed& y) {
    return reverse ? less(rt, y.key, x.key) : less(rt, x.key, y.key);
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& k : keyed) items.push_back(std::move(k.item));
  return items;
}

Value dict_sort(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_dictsort", {"case_sensitive", "by", "reverse"}, 0);
  if (!a[1].is(Kind::kMissing) &&
      !(a[1].is(Kind::kString) && (a[1].text() == "key" || a[1].text() == "value"))) {
    fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  }
  if (self.is(Kind::kUndefined)) fail_undefined(self);
  if (!self.is(Kind::kDict)) {
    fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", type_name(self)));
  }
  const bool by_value = a[1].is(Kind::kString) && a[1].text() == "value";
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : as<Dict>(self).items) {
    const Value& by = by_value ? value : key;
    keyed.push_back({truthy(rt, a[0]) ? by : lower_if_text(rt, by), rt.tuple({key, value})});
  }
  return rt.list(sorted(rt, std::move(keyed), is_reverse(a[2])));
}

Value first(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_first", {}, 0);
  Value item;
  return iterate(rt, self)->next(rt, item) ? item
                                           : rt.undefined("No first item, sequence was empty.");
}

bool reversible(const Value& value) { return has_length(value); }

Value last(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_last", {}, 0);
  if (!reversible(self))
    fail("TypeError", fmt::format("'{}' object is not reversible", type_name(self)));
  const auto items = to_vector(rt, self);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_reverse", {}, 0);
  if (self.is(Kind::kString)) return get_slice(rt, self, {}, {}, Value::of(int64_t{-1}));
  if (!is_iterable(self)) fail("FilterArgumentError", "argument must be iterable");
  auto items = to_vector(rt, self);
  std::reverse(items.begin(), items.end());
  const Value list = rt.list(std::move(items));
  if (!reversible(self)) return list;
  return rt.iterator(iterate(rt, list), "list_reverseiterator", list.depth() + 1);
}

Value group_by(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_groupby", {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(rt, a[0]);
  const bool case_sensitive = truthy(rt, a[2]);
  const Value fallback = a[1].is(Kind::kNone) ? Value() : a[1];
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(rt, item, fallback);
    return case_sensitive ? key : lower_if_text(rt, key);
  };
  std::vector<Keyed> keyed;
  for (const Value& item : to_vector(rt, self)) keyed.push_back({key_of(item), item});
  const auto items = sorted(rt, std::move(keyed), false);
  std::vector<Value> groups, members;
  const auto close = [&] {
    if (members.empty()) return;
    Value grouper = path.get(rt, members[0], fallback);
    groups.push_back(rt.group(std::move(grouper), rt.list(std::exchange(members, {}))));
  };
  for (const Value& item : items) {
    if (!members.empty() && !equals(rt, key_of(members[0]), key_of(item))) close();
    members.push_back(item);
  }
  close();
  return rt.list(std::move(groups));
}

Value items(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_items", {}, 0);
  return deferred(rt, self, args, [=](Runtime& start) -> Next {
    if (self.is(Kind::kUndefined)) return no_items;
    if (!self.is(Kind::kDict)) fail("TypeError", "Can only get item pairs from a mapping.");
    const auto dict = std::static_pointer_cast<Dict>(self.object);
    const Value view =
        from_object(Kind::kDictView, start.make<DictView>(dict, DictView::What::kItems));
    return [iter = std::shared_ptr<Iter>(iterate(start, view))](Runtime& r, Value& out) {
      return iter->next(r, out);
    };
  });
}

Value length(Runtime& rt, const Value& self, const Args& args) {
  args.bind("len", {}, 0);
  return Value::of(length_of(rt, self));
}

Value list(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_list", {}, 0);
  return rt.list(to_vector(rt, self));
}

// Returns args without the first n positional ones.
Args drop_first(const Args& args, size_t n) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<int64_t>(n), args.positional.end());
  rest.keyword = args.keyword;
  return rest;
}

// Returns the function that `map` applies to every item.
std::function<Value(Runtime&, Value)> map_function(Runtime& rt, const Args& args) {
  if (args.positional.empty() && args.find("attribute") != nullptr) {
    for (const auto& [key, value] : args.keyword) {
      if (key != "attribute" && key != "default") {
        fail("FilterArgumentError", fmt::format("Unexpected keyword argument '{}'", key));
      }
    }
    const Value* given = args.find("default");
    const Value fallback = given == nullptr || given->is(Kind::kNone) ? Value() : *given;
    return [path = AttributePath(rt, *args.find("attribute")), fallback](Runtime& r, Value item) {
      return path.get(r, std::move(item), fallback);
    };
  }
  if (args.positional.empty()) fail("FilterArgumentError", "map requires a filter argument");
  return [name = to_text(rt, args.positional[0]), rest = drop_first(args, 1)](
             Runtime& r, const Value& item) { return call_filter(r, name, item, rest); };
}

Value map(Runtime& rt, const Value& self, const Args& args) {
  return deferred(rt, self, args, [=](Runtime& start) -> Next {
    if (!truthy(start, self)) return no_items;
    const auto apply = map_function(start, args);
    auto iter = std::shared_ptr<Iter>(iterate(start, self));
    return [=](Runtime& r, Value& out) {
      Value item;
      if (!iter->next(r, item)) return false;
      out = apply(r, std::move(item));
      return true;
    };
  });
}

// Implements select, reject, selectattr and rejectattr.
template <bool Keep, bool ByAttribute>
Value select(Runtime& rt, const Value& self, const Args& args) {
  return deferred(rt, self, args, [=](Runtime& start) -> Next {
    if (!truthy(start, self)) return no_items;
    const size_t offset = ByAttribute ? 1 : 0;
    if (args.positional.size() < offset) {
      fail("FilterArgumentError", "Missing parameter for attribute name");
    }
    const AttributePath path(start, ByAttribute ? args.positional[0] : Value());
    const bool tested = args.positional.size() > offset;
    const std::string name = tested ? to_text(start, args.positional[offset]) : "";
    const Args rest = drop_first(args, std::min(offset + 1, args.positional.size()));
    auto iter = std::shared_ptr<Iter>(iterate(start, self));
    return [=](Runtime& r, Value& out) {
      for (Value item; iter->next(r, item);) {
        const Value subject = path.get(r, item);
        const bool passed = tested ? call_test(r, name, subject, rest) : truthy(r, subject);
        if (passed != Keep) continue;
        out = std::move(item);
        return true;
      }
      return false;
    };
  });
}

template <bool Max>
Value extreme(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("min or max", {"case_sensitive", "attribute"}, 0);
  const AttributePath path(rt, a[1]);
  const bool case_sensitive = truthy(rt, a[0]);
  Value best, best_key;
  const auto iter = iterate(rt, self);
  for (Value item; iter->next(rt, item);) {
    Value key = path.get(rt, item);
    if (!case_sensitive) key = lower_if_text(rt, key);
    if (best.is(Kind::kMissing) || (Max ? less(rt, best_key, key, ">") : less(rt, key, best_key))) {
      best = item;
      best_key = key;
    }
  }
  return best.is(Kind::kMissing) ? rt.undefined("No aggregated item, sequence was empty.") : best;
}

double round_real(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
    double out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
  }
  if (precision < -300) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value round(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_round", {"precision", "method"}, 0);
  const int64_t precision = a[0].is(Kind::kMissing) ? 0 : to_index(a[0], "precision");
  const std::string method = a[1].is(Kind::kMissing) ? "common" : to_text(rt, a[1]);
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (!self.is_number())
    fail("TypeError", fmt::format("type {} doesn't define __round__ method", type_name(self)));
  if (method == "common") {
    if (self.is(Kind::kFloat)) return Value::of(round_real(self.real, precision));
    if (precision >= 0) return Value::of(self.as_int());
    return Value::of(static_cast<int64_t>(round_real(self.as_double(), precision)));
  }
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = self.as_double() * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value sort(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const bool case_sensitive = truthy(rt, a[1]);
  std::vector<AttributePath> paths;
  if (a[2].is(Kind::kString)) {  // several attributes, separated by commas
    const std::string& names = a[2].text();
    for (size_t start = 0; start <= names.size();) {
      const size_t comma = std::min(names.find(',', start), names.size());
      paths.emplace_back(rt, rt.string(names.substr(start, comma - start)));
      start = comma + 1;
    }
  } else {
    paths.emplace_back(rt, a[2]);
  }
  std::vector<Keyed> keyed;
  for (const Value& item : to_vector(rt, self)) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      const Value part = path.get(rt, item);
      key.push_back(case_sensitive ? part : lower_if_text(rt, part));
    }
    keyed.push_back({rt.list(std::move(key)), item});
  }
  return rt.list(sorted(rt, std::move(keyed), is_reverse(a[0])));
}

Value sum(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_sum", {"attribute", "start"}, 0);
  const AttributePath path(rt, a[0]);
  Value total = or_default(a[1], Value::of(int64_t{0}));
  if (total.is(Kind::kString))
    fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
  const auto iter = iterate(rt, self);
  for (Value item; iter->next(rt, item);) {
    total = binary(rt, BinaryOp::kAdd, total, path.get(rt, std::move(item)));
  }
  return total;
}

Value unique(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_unique", {"case_sensitive", "attribute"}, 0);
  const bool case_sensitive = truthy(rt, a[0]);
  const Value attribute = a[1];
  return deferred(rt, self, args, [=](Runtime& start) -> Next {
    const AttributePath path(start, attribute);
    auto iter = std::shared_ptr<Iter>(iterate(start, self));
    auto seen = start.make<Dict>(Pairs{}, 0);
    return [=](Runtime& r, Value& out) {
      for (Value item; iter->next(r, item);) {
        Value key = path.get(r, item);
        if (!case_sensitive) key = lower_if_text(r, key);
        if (seen->find(r, key) != nullptr) continue;
        r.check_items(seen->items.size() + 1);
        seen->set(r, key, Value::none());
        out = std::move(item);
        return true;
      }
      return false;
    };
  });
}

Value refuse_random(Runtime&, const Value&, const Args&) {
  throw Failure{ErrorCode::kUnsupported, "",
                "the filter 'random' is not supported: renderings are reproducible", 0};
}

constexpr FilterRow kListFilters[] = {{"abs", absolute},
                                      {"attr", attr},
                                      {"batch", batch},
                                      {"count", length},
                                      {"d", default_value},
                                      {"default", default_value},
                                      {"dictsort", dict_sort},
                                      {"first", first},
                                      {"groupby", group_by},
                                      {"items", items},
                                      {"last", last},
                                      {"length", length},
                                      {"list", list},
                                      {"map", map},
                                      {"max", extreme<true>},
                                      {"min", extreme<false>},
                                      {"random", refuse_random},
                                      {"reject", select<false, false>},
                                      {"rejectattr", select<false, true>},
                                      {"reverse", reverse},
                                      {"round", round},
                                      {"select", select<true, false>},
                                      {"selectattr", select<true, true>},
                                      {"slice", slice},
                                      {"sort", sort},
                                      {"sum", sum},
                                      {"unique", unique}};

}  // namespace

AttributePath::AttributePath(Runtime& rt, const Value& attribute) {
  if (attribute.is(Kind::kMissing) || attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kString)) {
    parts_.push_back(attribute);
    return;
  }
  const std::string& path = attribute.text();
  for (size_t start = 0; start <= path.size();) {
    const size_t dot = std::min(path.find('.', start), path.size());
    const std::string part = path.substr(start, dot - start);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits = !part.empty() && part[0] != '-' &&
                        parsed.ptr == part.data() + part.size() && parsed.ec == std::errc();
    parts_.push_back(digits ? Value::of(index) : rt.string(part));
    start = dot + 1;
  }
}

Value AttributePath::get(Runtime& rt, Value item, const Value& fallback) const {
  for (const Value& part : parts_) {
    item = get_item(rt, item, part);
    if (!fallback.is(Kind::kMissing) && item.is(Kind::kUndefined)) item = fallback;
  }
  return item;
}

Value lower_if_text(Runtime& rt, const Value& value) {
  return value.is(Kind::kString) ? rt.string_like(value, to_lower(value.text())) : value;
}

std::span<const FilterRow> list_filters() { return kListFilters; }

}  // namespace penstock::jinja
