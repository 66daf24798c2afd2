#include "grammar/syntax/lark.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "base/text_hash.h"
#include "grammar/regex/parser.h"
#include "grammar/syntax/ignored.h"
#include "grammar/syntax/lark_common.h"
#include "grammar/syntax/lark_scanner.h"

namespace penstock::grammar {
namespace {

class LarkParser {
 public:
  LarkParser(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
             const Vocabulary* vocabulary, Budget& budget)
      : scan_(text, rules, vocabulary, static_cast<int>(budget.limits().max_depth)),
        lark_(scan_),
        in_(scan_.in()),
        rules_(rules),
        goal_of_(goal_of),
        budget_(budget),
        ignored_rule_(rules.anonymous(rules.sequence({}))),
        ignored_(rules.rule(ignored_rule_)) {}

  Compiled<uint32_t> run() {
    rules_.begin_scope();
    lark_.lines();
    while (!in_.at_end() && !scan_.failed()) statement();
    while (!instances_.empty() && !scan_.failed()) expand();
    if (!scan_.failed()) check_terminals();
    const uint32_t start = rules_.find("start");
    if (!scan_.failed() && (start == kNone || !rules_.rules()[start].body))
      scan_.invalid("there is no rule \"start\", with which texts begin");
    if (scan_.failed()) return tl::unexpected(std::move(scan_.refusal()));
    if (ignores_.empty()) return start;
    const uint32_t ignored = rules_.repeat(rules_.choice(std::move(ignores_)), 0, kNone);
    rules_.rules()[ignored_rule_].body = ignored;
    return without_ignored_at_begin(rules_, start, lexemes_, budget_);
  }

 private:
  using Names = TextMap<uint32_t>;
  struct Template {
    std::vector<std::string> parameters;
    // position of the body, which is parsed for each use
    size_t body;
  };
  struct Instance {
    std::string name;
    std::vector<uint32_t> arguments;
    uint32_t rule;
    size_t used_at;
  };

  void statement() {
    if (in_.take("%")) {
      directive();
    } else {
      definition();
    }
    if (scan_.failed()) return;
    lark_.space();
    if (!in_.at_end() && in_.peek() != '\n') {
      scan_.invalid(fmt::format("unexpected \"{}\"", in_.peek()));
      return;
    }
    lark_.lines();
  }

  void definition() {
    const std::string where = in_.where();
    const bool marked = in_.peek() == '?' || in_.peek() == '!';
    while (in_.peek() == '?' || in_.peek() == '!') in_.skip(1);
    const std::string defined = lark_.name();
    if (defined.empty()) {
      scan_.invalid(
          "expected a definition (name: ...), a directive (%ignore ...), or \"|\" and more of the "
          "one before");
      return;
    }
    if (!lark_.check_name(defined)) return;
    const bool terminal = LarkScanner::is_terminal(defined);
    if (terminal && marked) {
      scan_.invalid("\"?\" and \"!\" are for rules");
      return;
    }
    std::vector<std::string> parameters;
    const bool is_template = in_.peek() == '{';
    if (is_template && (terminal || !read_parameters(parameters))) {
      scan_.invalid("expected the names of a template's parameters: name{a, b}");
      return;
    }
    if (!head_end()) return;
    if (is_template) {
      define_template(defined, std::move(parameters));
    } else {
      define(defined, where, terminal);
    }
  }

  bool read_parameters(std::vector<std::string>& parameters) {
    do {
      in_.skip(1);
      lark_.space();
      parameters.push_back(lark_.name());
      if (parameters.back().empty() || LarkScanner::is_terminal(parameters.back())) return false;
      lark_.space();
    } while (in_.peek() == ',');
    return in_.take("}");
  }

  // Reads an optional priority, which has no effect, and the colon.
  bool head_end() {
    if (in_.peek() == '[') {
      scan_.unsupported(
          "attributes of rules ([lazy], [stop=...], [max_tokens=...]) are not supported");
      return false;
    }
    if (in_.take(".")) {
      if (in_.peek() == '-' || in_.peek() == '+') in_.skip(1);
      if (!scan_.number()) scan_.invalid("expected a priority: name.2: ...");
    }
    lark_.space();
    if (!scan_.failed() && (!in_.take(":") || in_.peek() == ':'))
      scan_.invalid("expected \":\" behind the name");
    return !scan_.failed();
  }

  void define(const std::string& defined, const std::string& where, bool terminal) {
    const uint32_t rule = rules_.named(defined, where);
    in_terminal_ = terminal;
    terminal_ = terminal ? rule : kNone;
    const uint32_t body = alternatives(0);
    in_terminal_ = false;
    set_body(rule, body);
  }

  void set_body(uint32_t rule, uint32_t body) {
    Rules::Rule& found = rules_.rules()[rule];
    if (!scan_.failed() && (found.body || templates_.contains(found.name)))
      scan_.invalid(fmt::format("\"{}\" is defined twice", found.name));
    if (!scan_.failed()) found.body = body;
  }

  // Parses the body once to find its end and its errors.
  void define_template(const std::string& defined, std::vector<std::string> parameters) {
    if (rules_.find(defined) != kNone || templates_.contains(defined)) {
      scan_.invalid(fmt::format("\"{}\" is defined twice, or used before as a rule", defined));
      return;
    }
    const size_t body = in_.position();
    const uint32_t none = rules_.sequence({});
    for (const std::string& parameter : parameters) parameters_[parameter] = none;
    dry_ = true;
    alternatives(0);
    dry_ = false;
    parameters_.clear();
    templates_[defined] = {std::move(parameters), body};
  }

  uint32_t alternatives(int depth) {
    std::vector<uint32_t> parts;
    do {
      parts.push_back(sequence(depth));
    } while (!scan_.failed() && lark_.bar());
    return rules_.choice(std::move(parts));
  }

  uint32_t sequence(int depth) {
    std::vector<uint32_t> parts;
    for (lark_.space(); !scan_.failed() && !sequence_ends(); lark_.space())
      parts.push_back(item(depth));
    if (!scan_.failed() && in_.take("->")) alias();
    return rules_.sequence(std::move(parts));
  }
  bool sequence_ends() const {
    const char c = in_.peek();
    return in_.at_end() || c == '\n' || c == '|' || c == ')' || c == ']' ||
           in_.rest().starts_with("->");
  }

  // Reads the name of a syntax-tree node, which has no effect.
  void alias() {
    lark_.space();
    if (in_terminal_ || lark_.name().empty())
      scan_.invalid("expected the name of an alternative of a rule behind \"->\"");
  }

  uint32_t item(int depth) {
    const uint32_t part = element(depth);
    lark_.space();
    if (scan_.failed() || !at_operator()) return part;
    const uint32_t repeated = repetition(part);
    lark_.space();
    if (!scan_.failed() && at_operator())
      return scan_.invalid("a repetition of a repetition: put the inner one into parentheses");
    return repeated;
  }
  bool at_operator() const {
    const char c = in_.peek();
    return c == '?' || c == '*' || c == '+' || c == '~' || c == '{';
  }

  uint32_t repetition(uint32_t part) {
    if (in_.take("?")) return rules_.repeat(part, 0, 1);
    if (in_.take("*")) return rules_.repeat(part, 0, kNone);
    if (in_.take("+")) return rules_.repeat(part, 1, kNone);
    if (in_.peek() == '{') return scan_.counted(part);
    in_.skip(1);
    lark_.space();
    const std::optional<uint32_t> least = scan_.number();
    std::optional<uint32_t> most = least;
    lark_.space();
    if (in_.take("..")) {
      lark_.space();
      most = scan_.number();
    }
    if (!least || !most) return scan_.invalid("expected ~ n or ~ n..m");
    return scan_.repeated(part, *least, *most);
  }

  uint32_t element(int depth) {
    const char c = in_.peek();
    switch (c) {
      case '(': return group(depth, ")");
      case '[': return rules_.repeat(group(depth, "]"), 0, 1);
      case '"': return lexeme(lark_.string());
      case '/': return lexeme(lark_.regex());
      case '<':
        return in_terminal_ ? scan_.invalid("special tokens are not allowed in terminals")
                            : lexeme(scan_.token());
      case '%': return lexeme(inline_part());
      case '\'': return scan_.invalid("strings stand in double quotes");
      case '@': return scan_.unsupported("other grammars (@name) are not supported");
      case '&':
      case '~':
        return scan_.unsupported("\"&\" and \"~\" of terminals (and, not) are not supported");
      default: break;
    }
    const size_t begin = in_.position();
    const std::string called = lark_.name();
    if (called.empty()) return scan_.invalid(fmt::format("unexpected \"{}\"", c));
    return lark_.check_name(called) ? reference(called, begin, depth) : 0;
  }

  uint32_t group(int depth, std::string_view close) {
    if (depth >= scan_.max_depth())
      return scan_.fail(RefusalKind::kTooLarge,
                        fmt::format("groups nest deeper than {}", scan_.max_depth()));
    in_.skip(1);
    const uint32_t inner = alternatives(depth + 1);
    if (!scan_.failed() && !in_.take(close))
      return scan_.invalid(fmt::format("expected \"{}\"; a line goes on with \"|\" only", close));
    return inner;
  }

  uint32_t reference(const std::string& called, size_t begin, int depth) {
    if (const auto known = parameters_.find(called); known != parameters_.end())
      return known->second;
    const bool terminal = LarkScanner::is_terminal(called);
    if (in_.peek() == '{' && !terminal && in_.peek(1) != ',' &&
        (in_.peek(1) < '0' || in_.peek(1) > '9'))
      return use_template(called, begin, depth);
    if (in_terminal_ && !terminal)
      return scan_.invalid(fmt::format(
          "the rule \"{}\" in a terminal: only terminals and literals are allowed", called));
    in_.back_to(begin);
    const uint32_t rule = rules_.named(called, in_.where());
    in_.skip(called.size());
    if (!terminal) return rules_.rule(rule);
    if (terminal_ != kNone) terminal_uses_.push_back({terminal_, rule});
    return lexeme(rules_.rule(rule));
  }

  // Returns a lexeme of a rule, with ignored text before it.
  uint32_t lexeme(uint32_t node) {
    if (in_terminal_ || scan_.failed()) return node;
    const uint32_t made = rules_.sequence({ignored_, node});
    lexemes_.insert(made);
    return made;
  }

  uint32_t use_template(const std::string& called, size_t begin, int depth) {
    if (in_terminal_) return scan_.invalid("templates are not allowed in terminals");
    if (depth >= scan_.max_depth())
      return scan_.fail(RefusalKind::kTooLarge,
                        fmt::format("templates nest deeper than {}", scan_.max_depth()));
    std::string key = called + '{';
    std::vector<uint32_t> arguments;
    do {
      in_.skip(1);
      lark_.space();
      if (in_.peek() == '(' || in_.peek() == '[')
        return scan_.invalid("a template's argument is a name, a literal or a use of a template");
      arguments.push_back(element(depth + 1));
      if (scan_.failed()) return 0;
      key += spelled(arguments.back()) + ',';
      lark_.space();
    } while (in_.peek() == ',');
    if (!in_.take("}"))
      return scan_.invalid("expected \",\" or \"}\" behind a template's argument");
    if (dry_) return arguments.front();
    const size_t known = rules_.rules().size();
    const uint32_t rule = rules_.named(key, in_.where());
    if (rule == known) instances_.push_back({called, std::move(arguments), rule, begin});
    return rules_.rule(rule);
  }

  // Returns a key that is equal for equal arguments.
  std::string spelled(uint32_t node) const {
    const bool is_lexeme = lexemes_.contains(node);
    const RuleNode& of = rules_.node(is_lexeme ? rules_.node(node).parts[1] : node);
    if (!of.parts.empty()) return fmt::format("n{}", node);
    return fmt::format("{}.{}.{}", static_cast<int>(of.kind), of.index,
                       static_cast<uint32_t>(of.text));
  }

  // Adds the rule of a template with its arguments.
  void expand() {
    const Instance made = std::move(instances_.front());
    instances_.pop_front();
    in_.back_to(made.used_at);
    const auto found = templates_.find(made.name);
    if (found == templates_.end() || found->second.parameters.size() != made.arguments.size()) {
      scan_.invalid(fmt::format("there is no template \"{}\" of {} parameters", made.name,
                                made.arguments.size()));
      return;
    }
    const Template& of = found->second;
    parameters_.clear();
    for (size_t i = 0; i < made.arguments.size(); ++i)
      parameters_[of.parameters[i]] = made.arguments[i];
    in_.back_to(of.body);
    const uint32_t body = alternatives(0);
    if (!budget_.take_schemas((in_.position() - of.body) / 16 + 1))
      scan_.fail(RefusalKind::kTooLarge, "the templates are too large, used as they are");
    set_body(made.rule, body);
  }

  // Reads %json {...}.
  uint32_t inline_part() {
    if (!in_.take("%json"))
      return scan_.unsupported("of what begins with %, only %json is supported in a rule");
    if (in_terminal_) return scan_.invalid("%json is not allowed in terminals");
    scan_.blanks();
    const size_t begin = in_.position();
    const std::string_view text = in_.rest().substr(0, lark_.json_length());
    auto schema = parse_json(text, scan_.max_depth());
    Compiled<uint32_t> goal = schema ? goal_of_(*schema, false) : tl::unexpected(schema.error());
    in_.skip(text.size());
    if (goal) return rules_.goal(*goal);
    in_.back_to(begin);
    return scan_.fail(goal.error().kind,
                      fmt::format("%json, {}: {}", goal.error().where, goal.error().message));
  }
  void directive() {
    const std::string word = lark_.name();
    lark_.space();
    if (word == "ignore") {
      in_terminal_ = true;
      terminal_ = kNone;
      ignores_.push_back(alternatives(0));
      in_terminal_ = false;
    } else if (word == "import") {
      import();
    } else if (word == "llguidance" && in_.take("{")) {
      scan_.blanks();
      if (!in_.take("}")) scan_.unsupported("no option of %llguidance is supported");
    } else {
      scan_.unsupported(
          fmt::format("%{} is not supported: %ignore and %import common.NAME are", word));
    }
  }

  // Reads common.NAME, common.NAME -> OTHER, or common (NAME, NAME).
  void import() {
    if (lark_.name() != "common") {
      scan_.unsupported("only the module common can be imported from: %import common.NAME");
      return;
    }
    if (in_.take(".")) {
      const std::string imported = lark_.name();
      lark_.space();
      std::string as = imported;
      if (in_.take("->")) {
        lark_.space();
        as = lark_.name();
      }
      import_as(imported, as);
      return;
    }
    lark_.space();
    if (in_.peek() != '(') {
      scan_.invalid("expected %import common.NAME or %import common (NAME, NAME)");
      return;
    }
    do {
      in_.skip(1);
      lark_.space();
      const std::string imported = lark_.name();
      import_as(imported, imported);
      lark_.space();
    } while (!scan_.failed() && in_.peek() == ',');
    if (!scan_.failed() && !in_.take(")")) scan_.invalid("expected \",\" or \")\"");
  }

  void import_as(const std::string& imported, const std::string& as) {
    const std::string_view pattern = lark_common_terminal(imported);
    if (pattern.empty()) {
      scan_.unsupported(fmt::format("common has no terminal \"{}\" that is supported: {}", imported,
                                    lark_common_names()));
    } else if (!LarkScanner::is_terminal(as) || !lark_.check_name(as)) {
      scan_.invalid("expected the name of a terminal, in upper case");
    } else {
      const auto expr = parse_terminal_regex(rules_.pool(), pattern, {}, scan_.max_depth());
      set_body(rules_.named(as, in_.where()), rules_.text(*expr));
    }
  }

  // Refuses recursive terminals: repeatedly removes terminals that use no remaining terminal; what
  // is left is recursive.
  void check_terminals() {
    std::unordered_map<uint32_t, std::vector<uint32_t>> users;
    std::unordered_map<uint32_t, size_t> n_used;
    for (const auto& use : terminal_uses_) {
      users[use.used].push_back(use.user);
      ++n_used[use.user];
    }
    std::vector<uint32_t> done;
    for (const auto& of : users) {
      if (!n_used.contains(of.first)) done.push_back(of.first);
    }
    while (!done.empty()) {
      const uint32_t used = done.back();
      done.pop_back();
      for (const uint32_t user : users[used]) {
        if (--n_used[user] == 0) done.push_back(user);
      }
    }
    const auto left = std::find_if(terminal_uses_.begin(), terminal_uses_.end(),
                                   [&](const TerminalUse& use) { return n_used[use.user] != 0; });
    if (left == terminal_uses_.end()) return;
    const Rules::Rule& rule = rules_.rules()[left->user];
    scan_.invalid(fmt::format("the terminal \"{}\" uses itself: only rules may", rule.name));
    scan_.refusal().where = rule.where;
  }

  struct TerminalUse {
    uint32_t user, used;
  };

  RuleScanner scan_;
  LarkScanner lark_;
  TextCursor& in_;
  Rules& rules_;
  const GoalOfSchema& goal_of_;
  Budget& budget_;
  uint32_t ignored_rule_, ignored_;  // text that may precede a lexeme
  std::vector<uint32_t> ignores_;
  std::unordered_set<uint32_t> lexemes_;
  TextMap<Template> templates_;
  // parameters of the current template with their arguments
  Names parameters_;
  std::deque<Instance> instances_;
  std::vector<TerminalUse> terminal_uses_;
  uint32_t terminal_ = kNone;  // terminal being defined; kNone: none
  bool in_terminal_ = false;
  bool dry_ = false;  // parse only to find the end
};

}  // namespace

Compiled<uint32_t> parse_lark(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
                              const Vocabulary* vocabulary, Budget& budget) {
  return LarkParser(text, rules, goal_of, vocabulary, budget).run();
}

}  // namespace penstock::grammar
