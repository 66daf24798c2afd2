// The parser: template text to syntax tree.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace penstock::jinja {

// Parses a template and resolves its variables. Throws Failure.
TemplateTree parse_template(std::string_view source);

// Fills in every VarRef and ScopeEntry of the tree (resolver.cc).
void resolve_variables(TemplateTree& tree);

// maximum nesting of statements and of parentheses
inline constexpr int kMaxNesting = 100;
inline constexpr int kMaxExprDepth = 400;  // maximum height of an expression's tree

// The tokens of a template with the reading position.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& next();  // returns the current token and advances
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view symbol);
  const Token& expect(TokenKind kind, const char* what);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view symbol);
  [[noreturn]] void fail_at(int line, std::string message) const;
  [[noreturn]] void fail_here(std::string message) const {
    fail_at(current().line, std::move(message));
  }

 private:
  [[noreturn]] void fail_expected(std::string_view what) const;
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(TokenReader& tokens) : in_(tokens) {}

  struct TupleOptions {
    bool with_condition = true;
    // names and literals only, as in `for a, b in`
    bool targets_only = false;
    bool with_namespace = false;
    bool parenthesized = false;
    const char* end_name = nullptr;  // a name that ends the tuple
  };
  ExprPtr tuple(const TupleOptions& options);
  ExprPtr expression(bool with_condition = true);
  ExprPtr filters(ExprPtr node, bool start_inline);  // parses "| a | b(c)" after node
  ExprPtr target(const char* end_name, bool with_namespace);
  std::string target_name();  // parses a bare name as assignment target

 private:
  ExprPtr condition();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr name_or_constant(bool with_namespace);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_or_test(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr subscript_part();
  ExprPtr test(ExprPtr node);
  ExprPtr call(ExprPtr node);
  std::unique_ptr<CallArgs> call_args();
  bool tuple_ends(const TupleOptions& options) const;
  void check_target(const Expr& node) const;

  ExprPtr make(ExprKind kind, int line) const;
  template <class... Children>
  ExprPtr make(ExprKind kind, int line, Children... children) const;
  void add_item(Expr& node, ExprPtr child) const;
  void set_args(Expr& node, std::unique_ptr<CallArgs> args) const;

  TokenReader& in_;
  int nesting_ = 0;
};

}  // namespace penstock::jinja
