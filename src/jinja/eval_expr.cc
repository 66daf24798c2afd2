// Evaluation of expressions and calls.
#include <fmt/format.h>

#include "jinja/eval.h"
#include "jinja/filters.h"
#include "jinja/print.h"

namespace penstock::jinja {
namespace {

bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq: return equals(rt, a, b);
    case CompareOp::kNe: return !equals(rt, a, b);
    case CompareOp::kLt: return less(rt, a, b);
    case CompareOp::kLe: return less_equal(rt, a, b);
    case CompareOp::kGt: return less(rt, b, a, ">");
    case CompareOp::kGe: return less_equal(rt, b, a, ">=");
    case CompareOp::kIn: return contains(rt, a, b);
    case CompareOp::kNotIn: return !contains(rt, a, b);
  }
  return false;
}

}  // namespace

Value Evaluator::eval(const Expr& expr, Frame& frame) {
  rt_.step();
  if (++depth_ > kMaxEvalDepth) {
    --depth_;
    fail_limit("the template recurses too deeply");
  }
  Value value;
  switch (expr.kind) {
    case ExprKind::kConst: value = expr.value; break;
    case ExprKind::kName: value = eval_name(expr, frame); break;
    case ExprKind::kTuple:
    case ExprKind::kList: value = eval_items(expr, frame); break;
    case ExprKind::kDict: value = eval_dict(expr, frame); break;
    case ExprKind::kAttribute:
      value = get_attribute(rt_, eval(*expr.items[0], frame), expr.name);
      break;
    case ExprKind::kItem: {
      const Value object = eval(*expr.items[0], frame);
      value = get_item(rt_, object, eval(*expr.items[1], frame));
      break;
    }
    case ExprKind::kSlice: value = eval_slice(expr, frame); break;
    case ExprKind::kCall: value = eval_call(expr, frame, nullptr); break;
    case ExprKind::kFilter:
    case ExprKind::kTest: value = eval_filter(expr, frame); break;
    case ExprKind::kCondition: value = eval_condition(expr, frame); break;
    case ExprKind::kAnd:
      value = eval(*expr.items[0], frame);
      if (truthy(rt_, value)) value = eval(*expr.items[1], frame);
      break;
    case ExprKind::kOr:
      value = eval(*expr.items[0], frame);
      if (!truthy(rt_, value)) value = eval(*expr.items[1], frame);
      break;
    case ExprKind::kNot: value = Value::of(!truthy(rt_, eval(*expr.items[0], frame))); break;
    case ExprKind::kNegate: value = negate(eval(*expr.items[0], frame)); break;
    case ExprKind::kPositive: value = positive(eval(*expr.items[0], frame)); break;
    case ExprKind::kConcat: value = eval_concat(expr, frame); break;
    case ExprKind::kBinary: {
      const Value left = eval(*expr.items[0], frame);
      value = binary(rt_, expr.op, left, eval(*expr.items[1], frame));
      break;
    }
    case ExprKind::kCompare: value = eval_compare(expr, frame); break;
    case ExprKind::kNamespaceRef:
    case ExprKind::kSliceBounds: break;  // never part of an expression
  }
  --depth_;
  return value;
}

Value Evaluator::eval_name(const Expr& expr, Frame& frame) {
  const Value& value = slot(expr.ref, frame);
  return value.is(Kind::kMissing) ? rt_.undefined_name(expr.name) : value;
}

Value Evaluator::eval_items(const Expr& expr, Frame& frame) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const auto& item : expr.items) items.push_back(eval(*item, frame));
  return expr.kind == ExprKind::kList ? rt_.list(std::move(items)) : rt_.tuple(std::move(items));
}

Value Evaluator::eval_dict(const Expr& expr, Frame& frame) {
  Dict unique(nullptr, {}, 0);
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    const Value key = eval(*expr.items[i], frame);
    unique.set(rt_, key, eval(*expr.items[i + 1], frame));
  }
  return rt_.dict(std::move(unique.items));
}

Value Evaluator::eval_slice(const Expr& expr, Frame& frame) {
  const Value object = eval(*expr.items[0], frame);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.items[i + 1] != nullptr) bounds[i] = eval(*expr.items[i + 1], frame);
  }
  return get_slice(rt_, object, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::eval_filter(const Expr& expr, Frame& frame) {
  const Value subject = expr.items[0] != nullptr ? eval(*expr.items[0], frame) : *frame.block_text;
  const Args args = eval_args(*expr.args, frame);
  if (expr.kind == ExprKind::kTest) return Value::of(call_test(rt_, expr.name, subject, args));
  return call_filter(rt_, expr.name, subject, args);
}

Value Evaluator::eval_condition(const Expr& expr, Frame& frame) {
  if (truthy(rt_, eval(*expr.items[1], frame))) return eval(*expr.items[0], frame);
  if (expr.items[2] != nullptr) return eval(*expr.items[2], frame);
  return rt_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      expr.line));
}

Value Evaluator::eval_concat(const Expr& expr, Frame& frame) {
  std::string text;
  for (const auto& item : expr.items) {
    const Value value = eval(*item, frame);
    append_text(text, value);
  }
  return rt_.string(std::move(text));
}

Value Evaluator::eval_compare(const Expr& expr, Frame& frame) {
  Value left = eval(*expr.items[0], frame);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.items[i + 1], frame);
    if (!compare(rt_, expr.ops[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Args Evaluator::eval_args(const CallArgs& args, Frame& frame) {
  Args out;
  for (const auto& arg : args.positional) out.positional.push_back(eval(*arg, frame));
  for (const auto& [name, arg] : args.keyword) out.keyword.emplace_back(name, eval(*arg, frame));
  if (args.star != nullptr) {
    const Value more = eval(*args.star, frame);
    if (!is_iterable(more)) {
      fail("TypeError", fmt::format("Value after * must be an iterable, not {}", type_name(more)));
    }
    for (Value& item : to_vector(rt_, more)) out.positional.push_back(std::move(item));
  }
  if (args.star_star == nullptr) return out;
  const Value more = eval(*args.star_star, frame);
  if (!more.is(Kind::kDict)) {
    fail("TypeError", fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
  }
  for (const auto& [key, value] : as<Dict>(more).items) {
    if (!key.is(Kind::kString)) fail("TypeError", "keywords must be strings");
    rt_.step(1 + out.keyword.size() / 8);
    if (out.find(key.text()) != nullptr) {
      fail("TypeError", fmt::format("got multiple values for keyword argument '{}'", key.text()));
    }
    out.keyword.emplace_back(key.text(), value);
  }
  return out;
}

Value Evaluator::eval_call(const Expr& expr, Frame& frame, const Value* caller) {
  const Value callee = eval(*expr.items[0], frame);
  Args args = eval_args(*expr.args, frame);
  if (caller != nullptr) args.keyword.emplace_back("caller", *caller);
  return call(callee, args);
}

Value Evaluator::call(const Value& callee, const Args& args) {
  rt_.step();
  switch (callee.kind) {
    case Kind::kFunction: return as<Function>(callee).body(rt_, args);
    case Kind::kMacro: return call_macro(as<Macro>(callee), args);
    case Kind::kLoop: return as<Loop>(callee).call(rt_, args);
    case Kind::kUndefined: fail_undefined(callee);
    default: fail("TypeError", fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

}  // namespace penstock::jinja
