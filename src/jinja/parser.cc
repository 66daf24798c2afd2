// Parser of statements.
#include "jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::jinja {
namespace {

using Names = std::vector<std::string_view>;

class TemplateParser {
 public:
  explicit TemplateParser(std::vector<Token> tokens) : in_(std::move(tokens)), expr_(in_) {}

  Body run() { return statements_until({}); }

 private:
  // Parses statements up to one of the end tags, which stays the current token, or to the end of
  // the template.
  Body statements_until(const Names& ends) {
    Body body;
    while (!in_.current().is(TokenKind::kEnd)) {
      const Token& token = in_.next();
      if (token.is(TokenKind::kData)) {
        auto data = make(StmtKind::kData, token.line);
        data->text = token.text;
        body.push_back(std::move(data));
      } else if (token.is(TokenKind::kVariableBegin)) {
        auto output = make(StmtKind::kOutput, token.line);
        output->exprs.push_back(expr_.tuple({}));
        in_.expect(TokenKind::kVariableEnd, "end of print statement");
        body.push_back(std::move(output));
      } else if (token.is(TokenKind::kBlockBegin)) {
        if (in_.current().is(TokenKind::kName) &&
            std::find(ends.begin(), ends.end(), in_.current().text) != ends.end()) {
          return body;
        }
        body.push_back(statement(ends));
        in_.expect(TokenKind::kBlockEnd, "end of statement block");
      } else {
        in_.fail_at(token.line, fmt::format("unexpected '{}'", describe(token)));
      }
    }
    if (!ends.empty()) {
      in_.fail_here(
          fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}.",
                      joined(ends)));
    }
    return body;
  }

  static std::string joined(const Names& names) {
    std::string out;
    for (const auto name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
    return out;
  }

  // Parses the rest of an opening tag, then its body.
  Body block_body(const Names& ends) {
    in_.skip_operator(":");
    in_.expect(TokenKind::kBlockEnd, "end of statement block");
    if (++nesting_ > kMaxNesting)
      in_.fail_here(fmt::format("statements nested deeper than {}", kMaxNesting));
    Body body = statements_until(ends);
    --nesting_;
    return body;
  }

  Body closed_body(std::string_view end) {
    Body body = block_body({end});
    in_.next();
    return body;
  }

  static StmtPtr make(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  StmtPtr statement(const Names& ends) {
    if (!in_.current().is(TokenKind::kName)) in_.fail_here("tag name expected");
    struct Row {
      std::string_view tag;
      StmtPtr (TemplateParser::*parse)(int line);
    };
    static constexpr Row kRows[] = {{"for", &TemplateParser::for_loop},
                                    {"if", &TemplateParser::if_else},
                                    {"set", &TemplateParser::set},
                                    {"macro", &TemplateParser::macro},
                                    {"call", &TemplateParser::call_block},
                                    {"filter", &TemplateParser::filter_block},
                                    {"with", &TemplateParser::with},
                                    {"print", &TemplateParser::print},
                                    {"block", &TemplateParser::block},
                                    {"generation", &TemplateParser::generation},
                                    {"break", &TemplateParser::loop_control},
                                    {"continue", &TemplateParser::loop_control},
                                    {"autoescape", &TemplateParser::autoescape},
                                    {"include", &TemplateParser::other_template},
                                    {"import", &TemplateParser::other_template},
                                    {"from", &TemplateParser::other_template},
                                    {"extends", &TemplateParser::other_template}};
    const Token& tag = in_.current();
    for (const Row& row : kRows) {
      if (tag.text != row.tag) continue;
      if (row.tag != "break" && row.tag != "continue" && row.tag != "include" &&
          row.tag != "import" && row.tag != "from" && row.tag != "extends") {
        in_.next();
      }
      return (this->*row.parse)(tag.line);
    }
    std::string message = fmt::format("Encountered unknown tag '{}'.", tag.text);
    if (!ends.empty())
      message += fmt::format(" Jinja was looking for the following tags: {}.", joined(ends));
    in_.fail_at(tag.line, message);
  }

  StmtPtr for_loop(int line) {
    auto stmt = make(StmtKind::kFor, line);
    stmt->target = expr_.target("in", false);
    in_.expect_name("in");
    ExprParser::TupleOptions options;
    options.with_condition = false;
    options.end_name = "recursive";
    stmt->exprs.push_back(expr_.tuple(options));
    if (in_.skip_name("if")) stmt->test = expr_.expression();
    stmt->recursive = in_.skip_name("recursive");
    stmt->body = block_body({"endfor", "else"});
    if (in_.next().text == "else") stmt->orelse = closed_body("endfor");
    return stmt;
  }

  StmtPtr if_else(int line) {
    auto stmt = make(StmtKind::kIf, line);
    ExprParser::TupleOptions options;
    options.with_condition = false;
    while (true) {
      ExprPtr test = expr_.tuple(options);
      Body body = block_body({"elif", "else", "endif"});
      stmt->branches.push_back({std::move(test), std::move(body)});
      const std::string& end = in_.next().text;
      if (end == "elif") continue;
      if (end == "else") stmt->branches.push_back({nullptr, closed_body("endif")});
      return stmt;
    }
  }

  StmtPtr set(int line) {
    auto stmt = make(StmtKind::kSet, line);
    stmt->target = expr_.target(nullptr, true);
    if (in_.skip_operator("=")) {
      stmt->exprs.push_back(expr_.tuple({}));
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->filter = expr_.filters(nullptr, false);
    stmt->body = closed_body("endset");
    return stmt;
  }

  void signature(MacroInfo& macro) {
    in_.expect_operator("(");
    while (!in_.current().is_operator(")")) {
      if (!macro.params.empty()) in_.expect_operator(",");
      std::string name = expr_.target_name();
      if (std::find(macro.params.begin(), macro.params.end(), name) != macro.params.end()) {
        in_.fail_here(fmt::format("duplicate argument '{}' in function definition", name));
      }
      macro.params.push_back(std::move(name));
      if (in_.skip_operator("=")) {
        macro.defaults.push_back(expr_.expression());
      } else if (!macro.defaults.empty()) {
        in_.fail_here("non-default argument follows default argument");
      }
    }
    in_.expect_operator(")");
  }

  StmtPtr macro(int line) {
    auto stmt = make(StmtKind::kMacro, line);
    stmt->macro = std::make_unique<MacroInfo>();
    stmt->name = stmt->macro->name = expr_.target_name();
    signature(*stmt->macro);
    stmt->macro->body = closed_body("endmacro");
    return stmt;
  }

  StmtPtr call_block(int line) {
    auto stmt = make(StmtKind::kCallBlock, line);
    stmt->macro = std::make_unique<MacroInfo>();
    if (in_.current().is_operator("(")) signature(*stmt->macro);
    stmt->exprs.push_back(expr_.expression());
    if (stmt->exprs[0]->kind != ExprKind::kCall) in_.fail_at(line, "expected call");
    stmt->macro->body = closed_body("endcall");
    return stmt;
  }

  StmtPtr filter_block(int line) {
    auto stmt = make(StmtKind::kFilterBlock, line);
    stmt->filter = expr_.filters(nullptr, true);
    stmt->body = closed_body("endfilter");
    return stmt;
  }

  StmtPtr with(int line) {
    auto stmt = make(StmtKind::kWith, line);
    while (!in_.current().is(TokenKind::kBlockEnd)) {
      if (!stmt->targets.empty()) in_.expect_operator(",");
      stmt->targets.push_back(expr_.target(nullptr, false));
      in_.expect_operator("=");
      stmt->exprs.push_back(expr_.expression());
    }
    stmt->body = closed_body("endwith");
    return stmt;
  }

  StmtPtr print(int line) {
    auto stmt = make(StmtKind::kOutput, line);
    while (!in_.current().is(TokenKind::kBlockEnd)) {
      if (!stmt->exprs.empty()) in_.expect_operator(",");
      stmt->exprs.push_back(expr_.expression());
    }
    return stmt;
  }

  StmtPtr block(int line) {
    auto stmt = make(StmtKind::kBlock, line);
    stmt->name = in_.expect(TokenKind::kName, "name").text;
    stmt->scoped = in_.skip_name("scoped");
    if (in_.current().is_name("required")) {
      throw Failure{ErrorCode::kUnsupported, "",
                    "required blocks need template inheritance, which is not supported", line};
    }
    stmt->body = closed_body("endblock");
    in_.skip_name(stmt->name);
    return stmt;
  }

  // Parses `generation`, which marks the assistant's tokens for training; it renders its body.
  StmtPtr generation(int line) {
    auto stmt = make(StmtKind::kScope, line);
    stmt->body = closed_body("endgeneration");
    return stmt;
  }

  StmtPtr loop_control(int line) {
    const bool is_break = in_.next().text == "break";
    return make(is_break ? StmtKind::kBreak : StmtKind::kContinue, line);
  }

  StmtPtr autoescape(int line) {
    const ExprPtr value = expr_.expression();
    if (value->kind != ExprKind::kConst || !value->value.is(Kind::kBool) || value->value.boolean) {
      throw Failure{ErrorCode::kUnsupported, "", "autoescape is not supported in a chat template",
                    line};
    }
    auto stmt = make(StmtKind::kScope, line);
    stmt->body = closed_body("endautoescape");
    return stmt;
  }

  // Parses include, import, from and extends: chat templates stand alone, so they fail when run.
  StmtPtr other_template(int line) {
    auto stmt = make(StmtKind::kFail, line);
    stmt->text = fmt::format(
        "'{}' is not supported: a chat template has no other templates to load", in_.next().text);
    while (!in_.current().is(TokenKind::kBlockEnd) && !in_.current().is(TokenKind::kEnd))
      in_.next();
    return stmt;
  }

  TokenReader in_;
  ExprParser expr_;
  int nesting_ = 0;
};

}  // namespace

TemplateTree parse_template(std::string_view source) {
  TemplateTree tree;
  tree.body = TemplateParser(tokenize(source)).run();
  resolve_variables(tree);
  return tree;
}

}  // namespace penstock::jinja
