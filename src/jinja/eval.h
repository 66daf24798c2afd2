// The evaluator: renders a parsed template once.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jinja/ast.h"
#include "jinja/loop.h"
#include "jinja/runtime.h"

namespace penstock::jinja {

// maximum nesting of statements, expressions and calls together
inline constexpr int kMaxEvalDepth = 2500;

// The variables of one call of a function (template, macro, recursive loop or block).
struct Activation : Object {
  Activation(Budget* budget, int n_slots, std::shared_ptr<Activation> parent);
  std::vector<Value> slots;
  std::shared_ptr<Activation> parent;
  // a macro that was made here may outlive the call
  bool captured = false;
};

struct Macro : Object {
  Macro(Budget* budget, const MacroInfo& info, std::shared_ptr<Activation> closure);
  const MacroInfo& info;
  const std::shared_ptr<Activation> closure;
};

class Evaluator {
 public:
  Evaluator(const TemplateTree& tree, Runtime& rt, Value context);  // context: a dict
  std::string render();

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Frame {
    std::shared_ptr<Activation> vars;
    std::string* out;
    // operand of a filter without one: the text of the filter block
    const Value* block_text = nullptr;
  };
  class Deeper;
  class TestedIter;

  Flow run(const Body& body, Frame& frame);
  Flow run_statement(const Stmt& stmt, Frame& frame);
  Flow run_if(const Stmt& stmt, Frame& frame);
  Flow run_loop(const Stmt& stmt, Frame& frame, const Value& iterable, int depth0);
  Flow run_captured(const Stmt& stmt, Frame& frame);  // evaluates set blocks and filter blocks
  void append_text(std::string& out, const Value& value);
  void append_block(const Value& value, Frame& frame);
  void run_block(const Stmt& stmt, Frame& frame);
  void run_set(const Stmt& stmt, Frame& frame);
  Flow run_with(const Stmt& stmt, Frame& frame);
  Value run_recursive(const Stmt& stmt, const std::shared_ptr<Activation>& outer,
                      const Value& iterable, int depth0);

  Value eval(const Expr& expr, Frame& frame);
  Value eval_name(const Expr& expr, Frame& frame);
  Value eval_items(const Expr& expr, Frame& frame);  // evaluates tuples and lists
  Value eval_dict(const Expr& expr, Frame& frame);
  Value eval_slice(const Expr& expr, Frame& frame);
  Value eval_filter(const Expr& expr, Frame& frame);
  Value eval_condition(const Expr& expr, Frame& frame);
  Value eval_concat(const Expr& expr, Frame& frame);
  Value eval_compare(const Expr& expr, Frame& frame);
  Value eval_call(const Expr& expr, Frame& frame, const Value* caller);
  Args eval_args(const CallArgs& args, Frame& frame);

  Value call(const Value& callee, const Args& args);
  Value call_macro(const Macro& macro, const Args& args);
  void bind_macro(const MacroInfo& info, const Args& args, Frame& frame);
  Value make_macro(const MacroInfo& info, Frame& frame);

  Frame activate(const FunctionInfo& function, std::shared_ptr<Activation> parent,
                 std::string* out);
  void enter(const ScopeEntry& entry, Frame& frame);
  Value& slot(VarRef ref, Frame& frame);
  void assign(const Expr& target, const Value& value, Frame& frame, bool exports);
  void check_namespaces(const Expr& target, Frame& frame);
  // Looks a name up in the context, then in the globals; kMissing: not found.
  Value resolve(const std::string& name);

  const TemplateTree& tree_;
  Runtime& rt_;
  const Value context_;
  std::map<std::string, Value> exported_;  // top-level variables that blocks see
  int depth_ = 0;
};

// Returns a global function (range, namespace, raise_exception, …); kMissing for an unknown name.
Value global_function(Runtime& rt, const std::string& name);

}  // namespace penstock::jinja
