// The syntax tree of a template. Built by the parser; the resolver fills in the slots of variables.
// Immutable afterwards, so that several threads may render it at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/ops.h"
#include "jinja/value.h"

namespace penstock::jinja {

// A reference to a variable: `slot` of the activation that is `hops` activations outwards. hops <
// 0: not a variable of the template.
struct VarRef {
  int hops = -1;
  int slot = 0;
};

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kNamespaceRef,  // assignment target a.b
  kTuple,
  kList,
  kDict,         // items: key, value, key, value, …
  kAttribute,    // items[0].name
  kItem,         // items[0][items[1]]
  kSlice,        // items[0][items[1]:items[2]:items[3]], null where omitted
  kSliceBounds,  // intermediate node of the parser: a:b:c before the object is known
  kCall,         // items[0](args)
  kFilter,       // items[0] | name(args); items[0] null: the text of a filter block
  kTest,         // items[0] is name(args)
  kCondition,    // items[0] if items[1] else items[2], which may be null
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPositive,
  kConcat,
  kBinary,   // op
  kCompare,  // items[0] ops[0] items[1] ops[1] items[2] …
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, star_star;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  // height of the expression's tree, bounded by the parser
  int depth = 1;
  BinaryOp op{};
  Value value;  // kConst
  // kName, kNamespaceRef, kAttribute, kFilter, kTest
  std::string name;
  std::string member;  // kNamespaceRef
  std::vector<ExprPtr> items;
  std::vector<CompareOp> ops;
  std::unique_ptr<CallArgs> args;
  VarRef ref;  // kName, kNamespaceRef
};

enum class StmtKind : uint8_t {
  kData,
  kOutput,       // exprs
  kIf,           // branches; null test: the else branch
  kFor,          // target, exprs[0] (iterable), test, body, orelse
  kSet,          // target, exprs[0]
  kSetBlock,     // target, filter (may be null), body
  kMacro,        // name, macro
  kCallBlock,    // exprs[0] (the call), macro
  kFilterBlock,  // filter, body
  kWith,         // targets in `targets`, values in exprs, body
  kScope,        // body, in its own scope
  kBlock,        // name, function
  kBreak,
  kContinue,
  kFail,  // an error at run time with `text` as its message
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// The initialization of a variable when its scope is entered.
struct SlotLoad {
  enum class From : uint8_t { kMissing, kContext, kAlias };
  From from = From::kMissing;
  int slot = 0;
  std::string name;  // kContext
  VarRef alias;      // kAlias
};
using ScopeEntry = std::vector<SlotLoad>;

// A function with its own activation (slots of variables): the template, a macro, a recursive loop
// or a block.
struct FunctionInfo {
  int n_slots = 0;
};

struct MacroInfo {
  std::string name;  // empty for the body of a call block
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // default values of the last params
  Body body;
  FunctionInfo function;
  ScopeEntry entry;
  std::vector<int> param_slots;
  // Slots of the implicit variables; -1: the body does not use the variable, or has it as a
  // parameter.
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
  bool uses_caller = false;
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 0;
  std::string text;  // kData, kFail
  std::string name;  // kMacro, kBlock
  std::vector<ExprPtr> exprs, targets;
  ExprPtr target, test, filter;
  std::vector<Branch> branches;
  Body body, orelse;
  std::unique_ptr<MacroInfo> macro;

  bool recursive = false;
  bool scoped = false;  // kBlock
  // kSet, kSetBlock, kMacro: kSet, kSetBlock, kMacro: at the top level of a template with blocks,
  // which see the variable.
  bool exports = false;
  // kMacro: variable to which the macro is assigned
  VarRef ref;
  ScopeEntry entry, test_entry, else_entry;
  int loop_slot = -1;                                   // kFor: the variable `loop`; -1: not used
  FunctionInfo function;                                // kFor when recursive, kBlock
  std::vector<std::pair<std::string, VarRef>> visible;  // kBlock when scoped
};

struct TemplateTree {
  Body body;
  FunctionInfo function;
  ScopeEntry entry;
  bool has_blocks = false;
};

}  // namespace penstock::jinja
