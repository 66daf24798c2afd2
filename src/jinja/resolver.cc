// Resolves variables to slots at parse time by jinja2's scoping rules: a name that is assigned
// anywhere in a scope belongs to that scope; if it is not assigned unconditionally, it starts with
// the outer value.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "jinja/filters.h"
#include "jinja/parser.h"

namespace penstock::jinja {
namespace {

struct Unit {  // a function activation while resolving
  FunctionInfo* info;
  Unit* parent;
  int loops = 0;  // open loops, for break and continue
};

struct Place {
  Unit* unit;
  int slot;
};

class Scope {
 public:
  Scope(Scope* parent, Unit* unit) : parent_(parent), unit_(unit) {}

  const Place* find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      const auto it = scope->names_.find(name);
      if (it != scope->names_.end()) return &it->second;
    }
    return nullptr;
  }

  void load(const std::string& name) {
    if (find(name) == nullptr) define(name, {SlotLoad::From::kContext, 0, name, {}});
  }

  void store(const std::string& name) {
    if (stores_.insert(name).second) first_stores_.push_back(name);
    if (names_.count(name) != 0) return;
    const Place* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
    define(name, outer != nullptr ? alias(*outer) : SlotLoad{});
  }

  int declare_parameter(const std::string& name) {
    stores_.insert(name);
    const auto it = names_.find(name);
    if (it != names_.end()) {
      drop_load(it->second.slot);
      return it->second.slot;
    }
    return define(name, {});
  }

  // Names first stored since `mark` were stored in a branch only: they start with the outer
  // value.
  size_t branch_mark() const { return first_stores_.size(); }
  void end_branches(size_t mark) {
    for (size_t i = mark; i < first_stores_.size(); ++i) {
      const std::string& name = first_stores_[i];
      const int slot = names_.at(name).slot;
      const Place* outer = parent_ != nullptr ? parent_->find(name) : nullptr;
      drop_load(slot);
      loads_.push_back(outer != nullptr ? alias(*outer)
                                        : SlotLoad{SlotLoad::From::kContext, 0, name, {}});
      loads_.back().slot = slot;
    }
  }

  VarRef ref(const std::string& name) const {
    const Place* place = find(name);
    return place != nullptr ? ref_to(*place) : VarRef{};
  }

  // Lists names assigned in this scope and its enclosing ones, innermost first.
  void visible(std::vector<std::pair<std::string, VarRef>>& out) const {
    std::set<std::string> seen;
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      for (const auto& name : scope->stores_) {
        if (seen.insert(name).second) out.emplace_back(name, ref(name));
      }
    }
  }

  ScopeEntry take_entry() { return std::move(loads_); }
  Unit* unit() const { return unit_; }

 private:
  int define(const std::string& name, SlotLoad load) {
    const int slot = unit_->info->n_slots++;
    names_[name] = {unit_, slot};
    load.slot = slot;
    loads_.push_back(std::move(load));
    return slot;
  }

  void drop_load(int slot) {
    std::erase_if(loads_, [slot](const SlotLoad& l) { return l.slot == slot; });
  }

  VarRef ref_to(const Place& place) const {
    int hops = 0;
    for (const Unit* unit = unit_; unit != place.unit; unit = unit->parent) ++hops;
    return {hops, place.slot};
  }

  SlotLoad alias(const Place& outer) const {
    return {SlotLoad::From::kAlias, 0, "", ref_to(outer)};
  }

  Scope* parent_;
  Unit* unit_;
  std::map<std::string, Place> names_;
  std::set<std::string> stores_;
  std::vector<std::string> first_stores_;
  ScopeEntry loads_;
};

template <class Visit>
void for_each_child(Expr& expr, Visit visit) {
  for (auto& item : expr.items) {
    if (item != nullptr) visit(*item);
  }
  if (expr.args == nullptr) return;
  for (auto& arg : expr.args->positional) visit(*arg);
  for (auto& [name, arg] : expr.args->keyword) visit(*arg);
  if (expr.args->star != nullptr) visit(*expr.args->star);
  if (expr.args->star_star != nullptr) visit(*expr.args->star_star);
}

// First pass over a scope: collects the names that it loads and stores, without inner scopes.
class Collector {
 public:
  explicit Collector(Scope& scope) : scope_(scope) {}

  void load(Expr& expr) {
    if (expr.kind == ExprKind::kName || expr.kind == ExprKind::kNamespaceRef)
      scope_.load(expr.name);
    for_each_child(expr, [&](Expr& child) { load(child); });
  }
  void load(const ExprPtr& expr) {
    if (expr != nullptr) load(*expr);
  }

  void store(Expr& target, bool parameter) {
    if (target.kind == ExprKind::kNamespaceRef) return scope_.load(target.name);
    if (target.kind == ExprKind::kTuple) {
      for (auto& item : target.items) store(*item, parameter);
    } else if (parameter) {
      scope_.declare_parameter(target.name);
    } else {
      scope_.store(target.name);
    }
  }

  void body(const Body& statements) {
    for (const auto& stmt : statements) statement(*stmt);
  }

 private:
  void statement(Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kIf: return branches(stmt);
      case StmtKind::kMacro: return scope_.store(stmt.name);
      case StmtKind::kFilterBlock: return load(stmt.filter);
      case StmtKind::kSetBlock: return store(*stmt.target, false);
      default:
        for (const auto& expr : stmt.exprs) load(expr);
        if (stmt.kind == StmtKind::kSet) store(*stmt.target, false);
    }
  }

  void branches(Stmt& stmt) {
    const size_t mark = scope_.branch_mark();
    for (auto& branch : stmt.branches) {
      load(branch.test);
      body(branch.body);
    }
    scope_.end_branches(mark);
  }

  Scope& scope_;
};

bool mentions(const Expr& expr, std::string_view name) {
  bool found = expr.kind == ExprKind::kName && expr.name == name;
  for_each_child(const_cast<Expr&>(expr),
                 [&](Expr& child) { found = found || mentions(child, name); });
  return found;
}

bool mentions(const Body& body, std::string_view name);

bool mentions(const Stmt& stmt, std::string_view name) {
  const auto in = [&](const ExprPtr& e) { return e != nullptr && mentions(*e, name); };
  if (in(stmt.test) || in(stmt.filter) || std::any_of(stmt.exprs.begin(), stmt.exprs.end(), in))
    return true;
  for (const auto& branch : stmt.branches) {
    if (in(branch.test) || mentions(branch.body, name)) return true;
  }
  if (stmt.macro != nullptr &&
      (std::any_of(stmt.macro->defaults.begin(), stmt.macro->defaults.end(), in) ||
       mentions(stmt.macro->body, name))) {
    return true;
  }
  return (stmt.kind == StmtKind::kBlock && stmt.scoped && name == "loop") ||
         mentions(stmt.body, name) || mentions(stmt.orelse, name);
}

bool mentions(const Body& body, std::string_view name) {
  return std::any_of(body.begin(), body.end(),
                     [&](const StmtPtr& s) { return mentions(*s, name); });
}

// Second pass: enters the scopes and sets the references.
class Resolver {
 public:
  explicit Resolver(TemplateTree& tree) : tree_(tree) {}

  void run() {
    find_blocks(tree_.body);
    Unit root{&tree_.function, nullptr};
    Scope scope(nullptr, &root);
    Collector(scope).body(tree_.body);
    at_top_ = true;
    body(tree_.body, scope);
    tree_.entry = scope.take_entry();
  }

 private:
  [[noreturn]] static void syntax_error(int line, std::string message) {
    throw Failure{ErrorCode::kInvalidArgument, "TemplateSyntaxError", std::move(message), line};
  }

  void find_blocks(const Body& statements) {
    for (const auto& stmt : statements) {
      if (stmt->kind == StmtKind::kBlock) {
        tree_.has_blocks = true;
        if (!block_names_.insert(stmt->name).second)
          syntax_error(stmt->line, fmt::format("block '{}' defined twice", stmt->name));
      }
      for (const auto& branch : stmt->branches) find_blocks(branch.body);
      if (stmt->macro != nullptr) find_blocks(stmt->macro->body);
      find_blocks(stmt->body);
      find_blocks(stmt->orelse);
    }
  }

  void expr(Expr& node, const Scope& scope, bool soft) {
    if (node.kind == ExprKind::kName || node.kind == ExprKind::kNamespaceRef)
      node.ref = scope.ref(node.name);
    const bool filter = node.kind == ExprKind::kFilter;
    if (!soft && (filter || node.kind == ExprKind::kTest)) {
      if ((filter ? find_filter(node.name) : find_test(node.name)) == nullptr) {
        throw Failure{ErrorCode::kInvalidArgument, "TemplateAssertionError",
                      fmt::format("No {} named '{}'.", filter ? "filter" : "test", node.name),
                      node.line};
      }
    }
    const bool child_soft = soft || node.kind == ExprKind::kCondition;
    for_each_child(node, [&](Expr& child) { expr(child, scope, child_soft); });
  }
  void expr(const ExprPtr& node, const Scope& scope, bool soft) {
    if (node != nullptr) expr(*node, scope, soft);
  }

  void target(Expr& node, const Scope& scope) {
    if (node.kind == ExprKind::kTuple) {
      for (auto& item : node.items) target(*item, scope);
      return;
    }
    if (node.kind == ExprKind::kName && node.name == "loop" && open_loops_ > 0) {
      syntax_error(node.line, "Can't assign to special loop variable in for-loop target");
    }
    node.ref = scope.ref(node.name);
  }

  void body(const Body& statements, Scope& scope, bool soft = false) {
    for (const auto& stmt : statements) statement(*stmt, scope, soft);
  }

  // Resolves a scope inside the same activation.
  template <class Collect, class Visit>
  ScopeEntry inner(Scope& outer, Collect collect, Visit visit) {
    Scope scope(&outer, outer.unit());
    Collector collector(scope);
    collect(collector, scope);
    const bool top = std::exchange(at_top_, false);
    visit(scope);
    at_top_ = top;
    return scope.take_entry();
  }

  void statement(Stmt& stmt, Scope& scope, bool soft) {
    stmt.exports = at_top_ && tree_.has_blocks;
    switch (stmt.kind) {
      case StmtKind::kIf:
        for (auto& branch : stmt.branches) {
          expr(branch.test, scope, true);
          body(branch.body, scope, true);
        }
        return;
      case StmtKind::kFor: return for_loop(stmt, scope, soft);
      case StmtKind::kSet: expr(stmt.exprs[0], scope, soft); return target(*stmt.target, scope);
      case StmtKind::kSetBlock:
      case StmtKind::kFilterBlock:
      case StmtKind::kScope:
        stmt.entry = inner(
            scope,
            [&](Collector& c, Scope&) {
              c.load(stmt.filter);
              c.body(stmt.body);
            },
            [&](Scope& s) {
              expr(stmt.filter, s, false);
              body(stmt.body, s);
            });
        if (stmt.target != nullptr) target(*stmt.target, scope);
        return;
      case StmtKind::kMacro:
        stmt.ref = scope.ref(stmt.name);
        return macro(*stmt.macro, stmt.line, scope);
      case StmtKind::kCallBlock:
        expr(stmt.exprs[0], scope, soft);
        return macro(*stmt.macro, stmt.line, scope);
      case StmtKind::kWith: return with(stmt, scope, soft);
      case StmtKind::kBlock: return block(stmt, scope);
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (scope.unit()->loops == 0) {
          syntax_error(stmt.line, stmt.kind == StmtKind::kBreak
                                      ? "'break' outside loop"
                                      : "'continue' not properly in loop");
        }
        return;
      default:
        for (const auto& e : stmt.exprs) expr(e, scope, soft);
    }
  }

  void with(Stmt& stmt, Scope& scope, bool soft) {
    for (const auto& value : stmt.exprs) expr(value, scope, soft);
    stmt.entry = inner(
        scope,
        [&](Collector& c, Scope&) {
          for (auto& t : stmt.targets) c.store(*t, true);
          c.body(stmt.body);
        },
        [&](Scope& s) {
          for (auto& t : stmt.targets) target(*t, s);
          body(stmt.body, s);
        });
  }

  void for_loop(Stmt& stmt, Scope& scope, bool soft) {
    expr(stmt.exprs[0], scope, soft);
    Unit own{&stmt.function, scope.unit()};
    Unit* unit = stmt.recursive ? &own : scope.unit();
    const bool top = std::exchange(at_top_, false);
    ++open_loops_;

    Scope inside(&scope, unit);
    if (stmt.recursive || mentions(stmt.body, "loop"))
      stmt.loop_slot = inside.declare_parameter("loop");
    Collector collector(inside);
    collector.store(*stmt.target, true);
    collector.body(stmt.body);
    target(*stmt.target, inside);
    ++unit->loops;
    body(stmt.body, inside);
    --unit->loops;
    stmt.entry = inside.take_entry();

    if (stmt.test != nullptr) {
      Scope tested(&scope, unit);
      stmt.targets.push_back(copy_target(*stmt.target));
      Collector test_collector(tested);
      test_collector.store(*stmt.targets[0], true);
      test_collector.load(stmt.test);
      target(*stmt.targets[0], tested);
      expr(stmt.test, tested, false);
      stmt.test_entry = tested.take_entry();
    }
    Scope otherwise(&scope, unit);
    Collector(otherwise).body(stmt.orelse);
    body(stmt.orelse, otherwise);
    stmt.else_entry = otherwise.take_entry();
    --open_loops_;
    at_top_ = top;
  }

  static ExprPtr copy_target(const Expr& node) {
    auto copy = std::make_unique<Expr>();
    copy->kind = node.kind;
    copy->line = node.line;
    copy->name = node.name;
    copy->member = node.member;
    for (const auto& item : node.items) copy->items.push_back(copy_target(*item));
    return copy;
  }

  void macro(MacroInfo& info, int line, Scope& outer) {
    Unit unit{&info.function, outer.unit()};
    Scope scope(&outer, &unit);
    Collector collector(scope);
    for (const auto& name : info.params) info.param_slots.push_back(scope.declare_parameter(name));
    const auto is_param = [&](std::string_view name) {
      return std::find(info.params.begin(), info.params.end(), name) != info.params.end();
    };
    if (mentions(info.body, "caller")) {
      info.uses_caller = true;
      if (!is_param("caller")) {
        info.caller_slot = scope.declare_parameter("caller");
      } else if (static_cast<size_t>(std::find(info.params.begin(), info.params.end(), "caller") -
                                     info.params.begin()) <
                 info.params.size() - info.defaults.size()) {
        syntax_error(line,
                     "When defining macros or call blocks the special \"caller\" argument must be "
                     "omitted or be given a default.");
      }
    }
    if (mentions(info.body, "kwargs") && !is_param("kwargs"))
      info.kwargs_slot = scope.declare_parameter("kwargs");
    if (mentions(info.body, "varargs") && !is_param("varargs"))
      info.varargs_slot = scope.declare_parameter("varargs");
    for (const auto& value : info.defaults) collector.load(value);
    collector.body(info.body);
    const bool top = std::exchange(at_top_, false);
    for (const auto& value : info.defaults) expr(value, scope, false);
    body(info.body, scope);
    at_top_ = top;
    info.entry = scope.take_entry();
  }

  // Resolves a block, which sees the context and top-level variables, not those around it.
  void block(Stmt& stmt, Scope& outer) {
    if (stmt.scoped) outer.visible(stmt.visible);
    Unit unit{&stmt.function, nullptr};
    Scope scope(nullptr, &unit);
    Collector(scope).body(stmt.body);
    const bool top = std::exchange(at_top_, false);
    body(stmt.body, scope);
    at_top_ = top;
    stmt.entry = scope.take_entry();
  }

  TemplateTree& tree_;
  std::set<std::string> block_names_;
  bool at_top_ = false;
  int open_loops_ = 0;
};

}  // namespace

void resolve_variables(TemplateTree& tree) { Resolver(tree).run(); }

}  // namespace penstock::jinja
