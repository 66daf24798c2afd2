// Evaluation of statements.
#include "jinja/eval.h"

#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/print.h"

namespace penstock::jinja {

Activation::Activation(Budget* budget, int n_slots, std::shared_ptr<Activation> parent)
    : Object(budget, 64 + static_cast<size_t>(n_slots) * sizeof(Value), 0),
      slots(static_cast<size_t>(n_slots)),
      parent(std::move(parent)) {}

Macro::Macro(Budget* budget, const MacroInfo& info, std::shared_ptr<Activation> closure)
    : Object(budget, 64, 0), info(info), closure(std::move(closure)) {}

// Counts one level of nesting for its lifetime.
class Evaluator::Deeper {
 public:
  explicit Deeper(Evaluator& evaluator) : evaluator_(evaluator) {
    evaluator_.rt_.step();
    if (++evaluator_.depth_ > kMaxEvalDepth) {
      --evaluator_.depth_;
      fail_limit("the template recurses too deeply");
    }
  }
  ~Deeper() { --evaluator_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Evaluator& evaluator_;
};

// Iterates over the items that pass the test of `for x in y if test`.
class Evaluator::TestedIter : public Iter {
 public:
  TestedIter(Evaluator& evaluator, const Stmt& stmt, const Frame& frame, std::unique_ptr<Iter> iter)
      : evaluator_(evaluator), stmt_(stmt), vars_(frame.vars), iter_(std::move(iter)) {}

  bool next(Runtime& rt, Value& out) override {
    const auto vars = vars_.lock();
    while (vars != nullptr && iter_->next(rt, out)) {
      std::string unused;
      Frame frame{vars, &unused};
      evaluator_.enter(stmt_.test_entry, frame);
      evaluator_.assign(*stmt_.targets[0], out, frame, false);
      if (truthy(rt, evaluator_.eval(*stmt_.test, frame))) return true;
    }
    return false;
  }

 private:
  Evaluator& evaluator_;
  const Stmt& stmt_;
  std::weak_ptr<Activation> vars_;  // weak, since one of its variables is the loop
  std::unique_ptr<Iter> iter_;
};

Evaluator::Evaluator(const TemplateTree& tree, Runtime& rt, Value context)
    : tree_(tree), rt_(rt), context_(std::move(context)) {}

std::string Evaluator::render() {
  std::string out;
  Frame frame = activate(tree_.function, nullptr, &out);
  enter(tree_.entry, frame);
  run(tree_.body, frame);
  return out;
}

Evaluator::Frame Evaluator::activate(const FunctionInfo& function,
                                     std::shared_ptr<Activation> parent, std::string* out) {
  return {rt_.make<Activation>(function.n_slots, std::move(parent)), out};
}

Value Evaluator::resolve(const std::string& name) {
  if (const auto it = exported_.find(name); it != exported_.end()) return it->second;
  rt_.step(as<Dict>(context_).items.size() / 8);
  if (const Value* found = as<Dict>(context_).find(name)) return *found;
  return global_function(rt_, name);
}

void Evaluator::enter(const ScopeEntry& entry, Frame& frame) {
  for (const SlotLoad& load : entry) {
    Value& place = frame.vars->slots[static_cast<size_t>(load.slot)];
    switch (load.from) {
      case SlotLoad::From::kMissing: place = Value(); break;
      case SlotLoad::From::kContext: place = resolve(load.name); break;
      case SlotLoad::From::kAlias: place = slot(load.alias, frame); break;
    }
  }
}

Value& Evaluator::slot(VarRef ref, Frame& frame) {
  Activation* vars = frame.vars.get();
  for (int i = 0; i < ref.hops; ++i) vars = vars->parent.get();
  return vars->slots[static_cast<size_t>(ref.slot)];
}

void Evaluator::check_namespaces(const Expr& target, Frame& frame) {
  for (const auto& item : target.items) check_namespaces(*item, frame);
  if (target.kind == ExprKind::kNamespaceRef && !slot(target.ref, frame).is(Kind::kNamespace)) {
    fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  }
}

void Evaluator::assign(const Expr& target, const Value& value, Frame& frame, bool exports) {
  if (target.kind == ExprKind::kName) {
    slot(target.ref, frame) = value;
    if (exports) exported_[target.name] = value;
    return;
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value space = slot(target.ref, frame);
    as<Dict>(space).set(rt_, rt_.string(target.member), value);
    return;
  }
  const size_t n = target.items.size();
  if (!is_iterable(value))
    fail("TypeError", fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  const auto iter = iterate(rt_, value);
  std::vector<Value> parts;
  for (Value item; parts.size() <= n && iter->next(rt_, item);) parts.push_back(std::move(item));
  if (parts.size() > n)
    fail("ValueError", fmt::format("too many values to unpack (expected {})", n));
  if (parts.size() < n) {
    fail("ValueError",
         fmt::format("not enough values to unpack (expected {}, got {})", n, parts.size()));
  }
  for (size_t i = 0; i < n; ++i) assign(*target.items[i], parts[i], frame, exports);
}

Evaluator::Flow Evaluator::run(const Body& body, Frame& frame) {
  const Deeper deeper(*this);
  for (const auto& stmt : body) {
    const Flow flow = run_statement(*stmt, frame);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_statement(const Stmt& stmt, Frame& frame) {
  rt_.step();
  rt_.line = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kData: rt_.append(*frame.out, stmt.text); break;
    case StmtKind::kOutput:
      for (const auto& expr : stmt.exprs) {
        const Value value = eval(*expr, frame);
        append_text(*frame.out, value);
      }
      break;
    case StmtKind::kIf: return run_if(stmt, frame);
    case StmtKind::kFor: {
      const Value iterable = eval(*stmt.exprs[0], frame);
      if (!stmt.recursive) return run_loop(stmt, frame, iterable, 0);
      rt_.append(*frame.out, run_recursive(stmt, frame.vars, iterable, 0).text());
      break;
    }
    case StmtKind::kSet: run_set(stmt, frame); break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: return run_captured(stmt, frame);
    case StmtKind::kMacro: {
      const Value macro = make_macro(*stmt.macro, frame);
      slot(stmt.ref, frame) = macro;
      if (stmt.exports) exported_[stmt.name] = macro;
      break;
    }
    case StmtKind::kCallBlock: {
      const Value caller = make_macro(*stmt.macro, frame);
      append_block(eval_call(*stmt.exprs[0], frame, &caller), frame);
      break;
    }
    case StmtKind::kWith: return run_with(stmt, frame);
    case StmtKind::kScope: enter(stmt.entry, frame); return run(stmt.body, frame);
    case StmtKind::kBlock: run_block(stmt, frame); break;
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kFail: throw Failure{ErrorCode::kUnsupported, "", stmt.text, stmt.line};
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_if(const Stmt& stmt, Frame& frame) {
  for (const Branch& branch : stmt.branches) {
    if (branch.test == nullptr || truthy(rt_, eval(*branch.test, frame)))
      return run(branch.body, frame);
  }
  return Flow::kNext;
}

void Evaluator::run_set(const Stmt& stmt, Frame& frame) {
  check_namespaces(*stmt.target, frame);
  assign(*stmt.target, eval(*stmt.exprs[0], frame), frame, stmt.exports);
}

Evaluator::Flow Evaluator::run_captured(const Stmt& stmt, Frame& frame) {
  std::string text;
  enter(stmt.entry, frame);
  Frame inner{frame.vars, &text};
  const Flow flow = run(stmt.body, inner);
  if (flow != Flow::kNext) return flow;  // break discards the text
  Value value = rt_.string(std::move(text));
  if (stmt.filter != nullptr) {
    const Value unfiltered = value;
    inner.block_text = &unfiltered;
    value = eval(*stmt.filter, inner);
  }
  if (stmt.kind == StmtKind::kSetBlock) {
    check_namespaces(*stmt.target, frame);
    assign(*stmt.target, value, frame, stmt.exports);
  } else {
    append_block(value, frame);
  }
  return Flow::kNext;
}

// Appends the result of a call or filter block, which must be text.
void Evaluator::append_text(std::string& out, const Value& value) {
  if (value.is(Kind::kString)) {
    rt_.append(out, value.text());
  } else {
    rt_.append(out, to_text(rt_, value));
  }
}

void Evaluator::append_block(const Value& value, Frame& frame) {
  if (!value.is(Kind::kString)) {
    fail("TypeError", fmt::format("expected str instance, {} found", type_name(value)));
  }
  rt_.append(*frame.out, value.text());
}

Evaluator::Flow Evaluator::run_with(const Stmt& stmt, Frame& frame) {
  std::vector<Value> values;
  enter(stmt.entry, frame);
  for (const auto& expr : stmt.exprs) values.push_back(eval(*expr, frame));
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.targets[i], values[i], frame, false);
  return run(stmt.body, frame);
}

void Evaluator::run_block(const Stmt& stmt, Frame& frame) {
  rt_.step(exported_.size());
  const auto saved = exported_;
  for (const auto& [name, ref] : stmt.visible) {
    const Value& value = slot(ref, frame);
    if (!value.is(Kind::kMissing)) exported_[name] = value;
  }
  Frame inner = activate(stmt.function, nullptr, frame.out);
  enter(stmt.entry, inner);
  run(stmt.body, inner);
  exported_ = saved;
}

Evaluator::Flow Evaluator::run_loop(const Stmt& stmt, Frame& frame, const Value& iterable,
                                    int depth0) {
  auto iter = iterate(rt_, iterable);
  if (stmt.test != nullptr)
    iter = std::make_unique<TestedIter>(*this, stmt, frame, std::move(iter));
  std::shared_ptr<Loop> loop;
  if (stmt.loop_slot >= 0) {
    Loop::Recurse recurse;
    if (stmt.recursive) {
      recurse = [this, &stmt, outer = frame.vars->parent](Runtime&, const Value& items, int depth) {
        return run_recursive(stmt, outer, items, depth);
      };
    }
    loop =
        rt_.make<Loop>(iterable, stmt.test != nullptr, std::move(iter), depth0, std::move(recurse));
  }
  // Whether some iteration has completed; otherwise the `else` branch runs, as in jinja2.
  bool completed = false;
  Value item;
  while (loop != nullptr ? loop->next(rt_, item) : iter->next(rt_, item)) {
    enter(stmt.entry, frame);
    assign(*stmt.target, item, frame, false);
    if (loop != nullptr)
      frame.vars->slots[static_cast<size_t>(stmt.loop_slot)] = from_object(Kind::kLoop, loop);
    const Flow flow = run(stmt.body, frame);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  if (loop != nullptr) loop->finish();
  if (completed || stmt.orelse.empty()) return Flow::kNext;
  enter(stmt.else_entry, frame);
  return run(stmt.orelse, frame);
}

Value Evaluator::run_recursive(const Stmt& stmt, const std::shared_ptr<Activation>& outer,
                               const Value& iterable, int depth0) {
  const Deeper deeper(*this);
  std::string text;
  Frame frame = activate(stmt.function, outer, &text);
  run_loop(stmt, frame, iterable, depth0);
  return rt_.string(std::move(text));
}

Value Evaluator::make_macro(const MacroInfo& info, Frame& frame) {
  if (!frame.vars->captured) {
    frame.vars->captured = true;
    rt_.at_end([vars = frame.vars] { vars->slots.clear(); });
  }
  return from_object(Kind::kMacro, rt_.make<Macro>(info, frame.vars));
}

Value Evaluator::call_macro(const Macro& macro, const Args& args) {
  const Deeper deeper(*this);
  const int line = rt_.line;
  std::string text;
  Frame frame = activate(macro.info.function, macro.closure, &text);
  enter(macro.info.entry, frame);
  bind_macro(macro.info, args, frame);
  run(macro.info.body, frame);
  rt_.line = line;
  return rt_.string(std::move(text));
}

void Evaluator::bind_macro(const MacroInfo& info, const Args& args, Frame& frame) {
  auto& slots = frame.vars->slots;
  const auto place = [&](int index) -> Value& { return slots[static_cast<size_t>(index)]; };
  const size_t n = info.params.size();
  std::vector<std::pair<std::string, Value>> keyword = args.keyword;
  const auto take = [&](std::string_view name) {
    for (auto it = keyword.begin(); it != keyword.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      keyword.erase(it);
      return value;
    }
    return Value();
  };
  for (size_t i = 0; i < n; ++i) {
    place(info.param_slots[i]) =
        i < args.positional.size() ? args.positional[i] : take(info.params[i]);
  }
  if (info.caller_slot >= 0) {
    const Value caller = take("caller");
    place(info.caller_slot) = caller.is(Kind::kMissing) || caller.is(Kind::kNone)
                                  ? rt_.undefined("No caller defined")
                                  : caller;
  }
  const std::string name = info.name.empty() ? "None" : quote(info.name);
  if (info.kwargs_slot >= 0) {
    Pairs pairs;
    for (auto& [key, value] : keyword) pairs.emplace_back(rt_.string(key), value);
    place(info.kwargs_slot) = rt_.dict(std::move(pairs));
  } else if (!keyword.empty()) {
    for (const auto& [key, value] : keyword) {
      if (key == "caller") {
        fail("TypeError",
             fmt::format("macro {} was invoked with two values for the special caller argument. "
                         "This is most likely a bug.",
                         name));
      }
    }
    fail("TypeError",
         fmt::format("macro {} takes no keyword argument {}", name, quote(keyword[0].first)));
  }
  if (info.varargs_slot >= 0) {
    const auto from =
        args.positional.begin() + static_cast<int64_t>(std::min(n, args.positional.size()));
    place(info.varargs_slot) = rt_.tuple({from, args.positional.end()});
  } else if (args.positional.size() > n) {
    fail("TypeError", fmt::format("macro {} takes not more than {} argument(s)", name, n));
  }
  const size_t first_default = n - info.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    Value& value = place(info.param_slots[i]);
    if (!value.is(Kind::kMissing)) continue;
    value = i >= first_default
                ? eval(*info.defaults[i - first_default], frame)
                : rt_.undefined(fmt::format("parameter '{}' was not provided", info.params[i]));
  }
}

}  // namespace penstock::jinja
