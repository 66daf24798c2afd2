// Parser of expressions: jinja2's grammar, from the loosest to the tightest operator.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/parser.h"

namespace penstock::jinja {
namespace {

Value text_constant(std::string text) {
  return from_object(Kind::kString, std::make_shared<String>(nullptr, std::move(text), false));
}

struct CompareRow {
  std::string_view symbol;
  CompareOp op;
};
constexpr CompareRow kCompare[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe},
                                   {"<", CompareOp::kLt},  {"<=", CompareOp::kLe},
                                   {">", CompareOp::kGt},  {">=", CompareOp::kGe}};

}  // namespace

const Token& TokenReader::next() {
  const Token& left = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return left;
}

bool TokenReader::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

bool TokenReader::skip_operator(std::string_view symbol) {
  if (!current().is_operator(symbol)) return false;
  next();
  return true;
}

void TokenReader::fail_at(int line, std::string message) const {
  throw Failure{ErrorCode::kInvalidArgument, "TemplateSyntaxError", std::move(message), line};
}

void TokenReader::fail_expected(std::string_view what) const {
  if (current().is(TokenKind::kEnd))
    fail_here(fmt::format("unexpected end of template, expected '{}'.", what));
  fail_here(fmt::format("expected token '{}', got '{}'", what, describe(current())));
}

const Token& TokenReader::expect(TokenKind kind, const char* what) {
  if (!current().is(kind)) fail_expected(what);
  return next();
}

void TokenReader::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void TokenReader::expect_operator(std::string_view symbol) {
  if (!skip_operator(symbol)) fail_expected(symbol);
}

ExprPtr ExprParser::make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

void ExprParser::add_item(Expr& node, ExprPtr child) const {
  if (child != nullptr) {
    node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > kMaxExprDepth)
      in_.fail_at(node.line, fmt::format("expression nested deeper than {}", kMaxExprDepth));
  }
  node.items.push_back(std::move(child));
}

void ExprParser::set_args(Expr& node, std::unique_ptr<CallArgs> args) const {
  const auto absorb = [&](const ExprPtr& arg) {
    if (arg != nullptr) node.depth = std::max(node.depth, arg->depth + 1);
  };
  for (const auto& arg : args->positional) absorb(arg);
  for (const auto& [name, arg] : args->keyword) absorb(arg);
  absorb(args->star);
  absorb(args->star_star);
  node.args = std::move(args);
}

template <class... Children>
ExprPtr ExprParser::make(ExprKind kind, int line, Children... children) const {
  auto node = make(kind, line);
  (add_item(*node, std::move(children)), ...);
  return node;
}

bool ExprParser::tuple_ends(const TupleOptions& options) const {
  const Token& token = in_.current();
  return token.is(TokenKind::kVariableEnd) || token.is(TokenKind::kBlockEnd) ||
         token.is_operator(")") || (options.end_name != nullptr && token.is_name(options.end_name));
}

ExprPtr ExprParser::tuple(const TupleOptions& options) {
  int line = in_.current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) in_.expect_operator(",");
    if (tuple_ends(options)) break;
    items.push_back(options.targets_only ? primary(options.with_namespace)
                                         : expression(options.with_condition));
    if (!in_.current().is_operator(",")) break;
    is_tuple = true;
    line = in_.current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!options.parenthesized) {
      in_.fail_here(fmt::format("Expected an expression, got '{}'", describe(in_.current())));
    }
  }
  auto node = make(ExprKind::kTuple, line);
  for (auto& item : items) add_item(*node, std::move(item));
  return node;
}

void ExprParser::check_target(const Expr& node) const {
  if (node.kind == ExprKind::kName || node.kind == ExprKind::kNamespaceRef) return;
  if (node.kind != ExprKind::kTuple) {
    in_.fail_at(node.line, node.kind == ExprKind::kConst ? "can't assign to 'const'"
                                                         : "can't assign to an expression");
  }
  for (const auto& item : node.items) check_target(*item);
}

ExprPtr ExprParser::target(const char* end_name, bool with_namespace) {
  TupleOptions options;
  options.targets_only = true;
  options.with_namespace = with_namespace;
  options.end_name = end_name;
  ExprPtr node = tuple(options);
  check_target(*node);
  return node;
}

std::string ExprParser::target_name() {
  const Token& token = in_.expect(TokenKind::kName, "name");
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants)) {
    in_.fail_at(token.line, "can't assign to 'name'");
  }
  return token.text;
}

ExprPtr ExprParser::expression(bool with_condition) {
  if (++nesting_ > kMaxNesting)
    in_.fail_here(fmt::format("expression nested deeper than {}", kMaxNesting));
  ExprPtr node = with_condition ? condition() : logical_or();
  --nesting_;
  return node;
}

ExprPtr ExprParser::condition() {
  int line = in_.current().line;
  ExprPtr node = logical_or();
  while (in_.skip_name("if")) {
    ExprPtr test = logical_or();
    ExprPtr otherwise;
    if (in_.skip_name("else")) otherwise = expression();
    node = make(ExprKind::kCondition, line, std::move(node), std::move(test), std::move(otherwise));
    line = in_.current().line;
  }
  return node;
}

ExprPtr ExprParser::logical_or() {
  ExprPtr node = logical_and();
  while (in_.current().is_name("or")) {
    const int line = in_.next().line;
    node = make(ExprKind::kOr, line, std::move(node), logical_and());
  }
  return node;
}

ExprPtr ExprParser::logical_and() {
  ExprPtr node = logical_not();
  while (in_.current().is_name("and")) {
    const int line = in_.next().line;
    node = make(ExprKind::kAnd, line, std::move(node), logical_not());
  }
  return node;
}

ExprPtr ExprParser::logical_not() {
  std::vector<int> lines;
  while (in_.current().is_name("not")) lines.push_back(in_.next().line);
  ExprPtr node = compare();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    node = make(ExprKind::kNot, *line, std::move(node));
  return node;
}

ExprPtr ExprParser::compare() {
  const int line = in_.current().line;
  ExprPtr first = sum();
  ExprPtr node;
  const auto add = [&](CompareOp op) {
    if (node == nullptr) node = make(ExprKind::kCompare, line, std::move(first));
    node->ops.push_back(op);
    add_item(*node, sum());
  };
  while (true) {
    const Token& token = in_.current();
    const auto* row =
        std::find_if(std::begin(kCompare), std::end(kCompare),
                     [&](const CompareRow& r) { return token.is_operator(r.symbol); });
    if (row != std::end(kCompare)) {
      in_.next();
      add(row->op);
    } else if (in_.skip_name("in")) {
      add(CompareOp::kIn);
    } else if (token.is_name("not") && in_.look().is_name("in")) {
      in_.next();
      in_.next();
      add(CompareOp::kNotIn);
    } else {
      return node != nullptr ? std::move(node) : std::move(first);
    }
  }
}

ExprPtr ExprParser::sum() {
  ExprPtr node = concat();
  while (in_.current().is_operator("+") || in_.current().is_operator("-")) {
    const Token& token = in_.next();
    const BinaryOp op = token.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    const int line = token.line;
    node = make(ExprKind::kBinary, line, std::move(node), concat());
    node->op = op;
  }
  return node;
}

ExprPtr ExprParser::concat() {
  const int line = in_.current().line;
  ExprPtr first = product();
  if (!in_.current().is_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, line, std::move(first));
  while (in_.skip_operator("~")) add_item(*node, product());
  return node;
}

ExprPtr ExprParser::product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMul},
                                                                   {"/", BinaryOp::kDiv},
                                                                   {"//", BinaryOp::kFloorDiv},
                                                                   {"%", BinaryOp::kMod}};
  ExprPtr node = power();
  while (true) {
    const Token& token = in_.current();
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& o) { return token.is_operator(o.first); });
    if (op == std::end(kOps)) return node;
    const int line = in_.next().line;
    node = make(ExprKind::kBinary, line, std::move(node), power());
    node->op = op->second;
  }
}

ExprPtr ExprParser::power() {
  ExprPtr node = unary();
  while (in_.current().is_operator("**")) {
    const int line = in_.next().line;
    node = make(ExprKind::kBinary, line, std::move(node), unary());
    node->op = BinaryOp::kPow;
  }
  return node;
}

ExprPtr ExprParser::unary(bool with_filter) {
  ExprPtr node;
  if (in_.current().is_operator("-") || in_.current().is_operator("+")) {
    if (++nesting_ > kMaxNesting)
      in_.fail_here(fmt::format("expression nested deeper than {}", kMaxNesting));
    const Token& token = in_.next();
    const ExprKind kind = token.text == "-" ? ExprKind::kNegate : ExprKind::kPositive;
    const int line = token.line;
    node = make(kind, line, unary(false));
    --nesting_;
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filter_or_test(std::move(node)) : std::move(node);
}

ExprPtr ExprParser::name_or_constant(bool with_namespace) {
  const Token& token = in_.next();
  const std::string& text = token.text;
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    node->value = Value::of(text == "true" || text == "True");
  } else if (text == "none" || text == "None") {
    node->value = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->name = text;
    if (with_namespace && in_.skip_operator(".")) {
      node->kind = ExprKind::kNamespaceRef;
      node->member = in_.expect(TokenKind::kName, "name").text;
    }
  }
  return node;
}

ExprPtr ExprParser::primary(bool with_namespace) {
  const Token& token = in_.current();
  if (token.is(TokenKind::kName)) return name_or_constant(with_namespace);
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (token.is(TokenKind::kString)) {
    std::string text;
    while (in_.current().is(TokenKind::kString)) text += in_.next().text;
    node->value = text_constant(std::move(text));
    return node;
  }
  if (token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat)) {
    node->value = token.is(TokenKind::kInteger) ? Value::of(token.integer) : Value::of(token.real);
    in_.next();
    return node;
  }
  if (token.is_operator("(")) {
    if (++nesting_ > kMaxNesting)
      in_.fail_here(fmt::format("expression nested deeper than {}", kMaxNesting));
    in_.next();
    TupleOptions options;
    options.parenthesized = true;
    node = tuple(options);
    in_.expect_operator(")");
    --nesting_;
    return node;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  in_.fail_here(fmt::format("unexpected '{}'", describe(token)));
}

ExprPtr ExprParser::list() {
  ExprPtr node = make(ExprKind::kList, in_.next().line);
  while (!in_.current().is_operator("]")) {
    if (!node->items.empty()) in_.expect_operator(",");
    if (in_.current().is_operator("]")) break;
    add_item(*node, expression());
  }
  in_.expect_operator("]");
  return node;
}

ExprPtr ExprParser::dict() {
  ExprPtr node = make(ExprKind::kDict, in_.next().line);
  while (!in_.current().is_operator("}")) {
    if (!node->items.empty()) in_.expect_operator(",");
    if (in_.current().is_operator("}")) break;
    add_item(*node, expression());
    in_.expect_operator(":");
    add_item(*node, expression());
  }
  in_.expect_operator("}");
  return node;
}

ExprPtr ExprParser::postfix(ExprPtr node) {
  while (true) {
    if (in_.current().is_operator(".") || in_.current().is_operator("[")) {
      node = subscript(std::move(node));
    } else if (in_.current().is_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::filter_or_test(ExprPtr node) {
  while (true) {
    if (in_.current().is_operator("|")) {
      node = filters(std::move(node), false);
    } else if (in_.current().is_name("is")) {
      node = test(std::move(node));
    } else if (in_.current().is_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::subscript(ExprPtr object) {
  const Token& token = in_.next();
  const int line = token.line;
  if (token.text == ".") {
    const Token& name = in_.next();
    if (name.is(TokenKind::kName)) {
      ExprPtr node = make(ExprKind::kAttribute, line, std::move(object));
      node->name = name.text;
      return node;
    }
    if (!name.is(TokenKind::kInteger)) in_.fail_at(name.line, "expected name or number");
    ExprPtr index = make(ExprKind::kConst, line);
    index->value = Value::of(name.integer);
    return make(ExprKind::kItem, line, std::move(object), std::move(index));
  }
  std::vector<ExprPtr> parts;
  while (!in_.current().is_operator("]")) {
    if (!parts.empty()) in_.expect_operator(",");
    parts.push_back(subscript_part());
  }
  in_.expect_operator("]");
  if (parts.size() == 1 && parts[0]->kind == ExprKind::kSliceBounds) {
    ExprPtr slice = std::move(parts[0]);
    ExprPtr node = make(ExprKind::kSlice, line, std::move(object));
    for (auto& item : slice->items) add_item(*node, std::move(item));
    return node;
  }
  for (const auto& part : parts) {
    if (part->kind == ExprKind::kSliceBounds)
      in_.fail_at(line, "a slice can not be part of a tuple");
  }
  if (parts.size() == 1) return make(ExprKind::kItem, line, std::move(object), std::move(parts[0]));
  ExprPtr key = make(ExprKind::kTuple, line);
  for (auto& part : parts) add_item(*key, std::move(part));
  return make(ExprKind::kItem, line, std::move(object), std::move(key));
}

ExprPtr ExprParser::subscript_part() {
  ExprPtr node = make(ExprKind::kSliceBounds, in_.current().line);
  ExprPtr first;
  if (!in_.current().is_operator(":")) {
    first = expression();
    if (!in_.current().is_operator(":")) return first;
  }
  in_.next();
  add_item(*node, std::move(first));
  const auto ends = [&] {
    return in_.current().is_operator("]") || in_.current().is_operator(",");
  };
  add_item(*node, in_.current().is_operator(":") || ends() ? nullptr : expression());
  ExprPtr step;
  if (in_.skip_operator(":") && !ends()) step = expression();
  add_item(*node, std::move(step));
  return node;
}

std::unique_ptr<CallArgs> ExprParser::call_args() {
  const int line = in_.current().line;
  in_.expect_operator("(");
  auto args = std::make_unique<CallArgs>();
  bool need_comma = false;
  const auto ensure = [&](bool ok) {
    if (!ok) in_.fail_at(line, "invalid syntax for function call expression");
  };
  while (!in_.current().is_operator(")")) {
    if (need_comma) {
      in_.expect_operator(",");
      if (in_.current().is_operator(")")) break;
    }
    if (in_.skip_operator("*")) {
      ensure(args->star == nullptr && args->star_star == nullptr);
      args->star = expression();
    } else if (in_.skip_operator("**")) {
      ensure(args->star_star == nullptr);
      args->star_star = expression();
    } else if (in_.current().is(TokenKind::kName) && in_.look().is_operator("=")) {
      ensure(args->star_star == nullptr);
      std::string name = in_.next().text;
      in_.next();
      for (const auto& [key, value] : args->keyword) {
        if (key == name) in_.fail_at(line, fmt::format("keyword argument repeated: {}", name));
      }
      args->keyword.emplace_back(std::move(name), expression());
    } else {
      ensure(args->star == nullptr && args->star_star == nullptr && args->keyword.empty());
      args->positional.push_back(expression());
    }
    need_comma = true;
  }
  in_.expect_operator(")");
  return args;
}

ExprPtr ExprParser::call(ExprPtr callee) {
  const int line = in_.current().line;
  ExprPtr node = make(ExprKind::kCall, line, std::move(callee));
  set_args(*node, call_args());
  return node;
}

ExprPtr ExprParser::filters(ExprPtr node, bool start_inline) {
  while (in_.current().is_operator("|") || start_inline) {
    if (!start_inline) in_.next();
    start_inline = false;
    const Token& token = in_.expect(TokenKind::kName, "name");
    const int line = token.line;
    std::string name = token.text;
    while (in_.skip_operator(".")) name += "." + in_.expect(TokenKind::kName, "name").text;
    node = make(ExprKind::kFilter, line, std::move(node));
    node->name = std::move(name);
    set_args(*node, in_.current().is_operator("(") ? call_args() : std::make_unique<CallArgs>());
  }
  return node;
}

ExprPtr ExprParser::test(ExprPtr subject) {
  const int line = in_.next().line;
  const bool negated = in_.skip_name("not");
  std::string name = in_.expect(TokenKind::kName, "name").text;
  while (in_.skip_operator(".")) name += "." + in_.expect(TokenKind::kName, "name").text;
  ExprPtr node = make(ExprKind::kTest, line, std::move(subject));
  node->name = std::move(name);
  const Token& token = in_.current();
  const bool starts_value = token.is(TokenKind::kName) || token.is(TokenKind::kString) ||
                            token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat) ||
                            token.is_operator("[") || token.is_operator("{");
  auto args = std::make_unique<CallArgs>();
  if (token.is_operator("(")) {
    args = call_args();
  } else if (starts_value && !token.is_name("else") && !token.is_name("or") &&
             !token.is_name("and")) {
    if (token.is_name("is")) in_.fail_here("You cannot chain multiple tests with is");
    args->positional.push_back(postfix(primary()));
  }
  set_args(*node, std::move(args));
  return negated ? make(ExprKind::kNot, line, std::move(node)) : std::move(node);
}

}  // namespace penstock::jinja
