// penstock grammar check | show | sample: tests JSON Schemas, regular expressions, grammars and
// tags.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/commands/grammar_check.h"
#include "cli/commands/grammar_sample.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/options/models.h"
#include "grammar/program/program.h"
#include "grammar/schema/json_value.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using grammar::GrammarSpec;
using grammar::JsonValue;
using grammar::SpecKind;

constexpr int kMaxCaseDepth = 1'000;  // maximum nesting of a line's JSON

struct KindName {
  SpecKind kind;
  const char* name;
  const char* help;
};
constexpr KindName kKinds[] = {
    {SpecKind::kJsonSchema, "schema", "file with a JSON Schema"},
    {SpecKind::kRegex, "regex", "file with a regular expression, which the whole text must match"},
    {SpecKind::kGrammar, "grammar", "file with a grammar in GBNF, EBNF or Lark"},
    {SpecKind::kStructuralTag, "structural-tag", "file with a structural tag"},
};

std::string member_name(const KindName& kind) {
  std::string name = kind.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

struct GrammarCommand {
  explicit GrammarCommand(CLI::App& app) {
    app.require_subcommand(1);
    check = app.add_subcommand("check",
                               "compile, and tell which texts are allowed and how long masks take");
    show = app.add_subcommand("show", "compile, and print a summary and what is not enforced");
    sample = app.add_subcommand("sample", "draw random allowed texts, one JSON object per line");
    for (CLI::App* sub : {check, show, sample}) {
      auto* input = sub->add_option_group("input")->require_option(1);
      for (size_t i = 0; i < std::size(kKinds); ++i) {
        input->add_option(std::string("--") + kKinds[i].name, files[i], kKinds[i].help);
      }
      sub->add_option("--objects", objects,
                      "whose schema says nothing of additionalProperties: open, as JSON Schema "
                      "means it, or closed, as texts are generated")
          ->check(CLI::IsMember({"open", "closed"}))
          ->capture_default_str();
      if (sub == show) continue;
      input->add_option("--cases", cases,
                        "JSON lines: {id, schema | regex | grammar | structural_tag, texts}");
      sub->add_option("-m,--tokenizer-model", model,
                      "model with the tokenizer, as for `penstock tokenize -m`")
          ->required();
      sub->add_option("--member-order", member_order,
                      "of a schema's objects: any, as JSON Schema means it, or declared, as texts "
                      "are generated")
          ->check(CLI::IsMember({"any", "declared"}))
          ->capture_default_str();
    }
    sample->add_option("-n", n_samples, "how many of each")->check(CLI::Range(1, 1'000'000));
    sample->add_option("--seed", seed, "seed of the draws");
    sample
        ->add_option("--wander", wander,
                     "tokens drawn freely at most, before the text turns to its end")
        ->check(CLI::Range(0, 100'000));
    sample
        ->add_option("--max-tokens", max_tokens,
                     "largest number of tokens of a text; longer ones are skipped")
        ->check(CLI::Range(1, 1'000'000));
    check->add_option("--instances", instances, "JSON lines: {text}, each walked byte for byte");
    check->add_flag("--json", json, "print one JSON object, for --cases one a line");
  }

  GrammarSpec spec_of(SpecKind kind, std::string text) const {
    // Structural tags define the order of members themselves.
    const bool any_order = kind == SpecKind::kJsonSchema && member_order == "any";
    return {.kind = kind,
            .text = std::move(text),
            .json = {.closed_objects = objects == "closed", .any_member_order = any_order}};
  }

  Result<GrammarSpec> spec() const {
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      if (files[i].empty()) continue;
      ASSIGN_OR_RETURN(std::string text, read_text(files[i]));
      return spec_of(kKinds[i].kind, std::move(text));
    }
    return errorf(ErrorCode::kInvalidArgument, "no specification");
  }

  int run_check() const;
  int run_show() const;
  int run_sample() const;
  int print_samples(const GrammarSpec& spec,
                    const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                    const std::string& id) const;
  // Calls `run` for every line of `cases` until it returns a nonzero exit code, which is returned.
  int for_each_case(const std::function<int(const JsonValue& line, GrammarSpec spec)>& run) const;
  int print(const CheckAnswer& answer, const std::string& id) const;

  CLI::App *check, *show, *sample;
  std::string files[std::size(kKinds)];
  std::string cases, instances, model, member_order = "any", objects = "open";
  bool json = false;
  int n_samples = 10, wander = 40, max_tokens = 2000;
  uint64_t seed = 0;
};

std::string member_text(const JsonValue& object, const char* key) {
  const JsonValue* member = object.find(key);
  return member == nullptr ? "" : member->text();
}

std::vector<std::string> texts_of(const JsonValue& line) {
  std::vector<std::string> texts;
  if (const JsonValue* list = line.find("texts")) {
    for (const auto& member : list->members) texts.push_back(member.value.string);
  }
  return texts;
}

Result<std::vector<std::string>> read_instances(const std::string& file) {
  std::vector<std::string> texts;
  if (file.empty()) return texts;
  ASSIGN_OR_RETURN(const std::string content, read_text(file));
  std::string_view rest = content;
  for (int line = 1; !rest.empty(); ++line) {
    const std::string_view one = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const auto value = grammar::parse_json(one, kMaxCaseDepth);
    const JsonValue* text = value ? value->find("text") : nullptr;
    if (text == nullptr || !text->is_string()) {
      return errorf(ErrorCode::kInvalidArgument, "{}, line {}: expected {{\"text\": \"...\"}}",
                    file, line);
    }
    texts.push_back(text->string);
  }
  return texts;
}

int GrammarCommand::print(const CheckAnswer& answer, const std::string& id) const {
  if (!answer.broken.empty())
    return fail({ErrorCode::kInternal, "grammar check: " + answer.broken});
  if (json || !cases.empty()) {
    fmt::print("{}\n", answer.json(id));
    std::fflush(stdout);
    return kExitOk;
  }
  if (answer.refusal) {
    fmt::print("{}: {}: {}\n", grammar::name_of(answer.refusal->kind), answer.refusal->where,
               answer.refusal->message);
    return kExitOk;
  }
  fmt::print("compiled in {:.0f} us\n", answer.compile_us);
  for (const grammar::Note& note : answer.notes)
    fmt::print("note: {}: {}\n", note.where, note.message);
  for (size_t i = 0; i < answer.results.size(); ++i) {
    const TextResult& result = answer.results[i];
    const std::string verdict =
        result.valid ? "valid"
        : result.failure.empty()
            ? fmt::format("not valid at token {}", result.at)
            : fmt::format("given up at token {}: {}", result.at, result.failure);
    fmt::print("{}: {}\n", i + 1, verdict);
  }
  return kExitOk;
}

int GrammarCommand::for_each_case(
    const std::function<int(const JsonValue&, GrammarSpec)>& run) const {
  const auto in = open_input(cases);
  if (!in) return fail(in.error());
  for (std::string line; std::getline(**in, line);) {
    if (line.find_first_not_of(" \r\t") == std::string::npos) continue;
    const auto value = grammar::parse_json(line, kMaxCaseDepth);
    if (!value)
      return fail(
          {ErrorCode::kInvalidArgument, fmt::format("{}: {}", cases, value.error().message)});
    GrammarSpec one;
    for (const KindName& kind : kKinds) {
      const JsonValue* spec = value->find(member_name(kind));
      if (spec == nullptr) continue;
      const bool as_text = kind.kind == SpecKind::kRegex || kind.kind == SpecKind::kGrammar;
      one = spec_of(kind.kind, as_text ? spec->string : spec->text());
    }
    if (const int code = run(*value, std::move(one)); code != kExitOk) return code;
  }
  return kExitOk;
}

int GrammarCommand::run_check() const {
  auto tokenizer = open_tokenizer(model);
  if (!tokenizer) return fail(tokenizer.error());
  const auto vocabulary = grammar::Vocabulary::make(**tokenizer);
  if (!cases.empty()) {
    return for_each_case([&](const JsonValue& line, GrammarSpec spec) {
      return print(check_grammar({std::move(spec), texts_of(line)}, **tokenizer, vocabulary),
                   member_text(line, "id"));
    });
  }
  auto one = spec();
  if (!one) return fail(one.error());
  auto texts = read_instances(instances);
  if (!texts) return fail(texts.error());
  return print(check_grammar({*std::move(one), *std::move(texts)}, **tokenizer, vocabulary), "");
}

int GrammarCommand::print_samples(const GrammarSpec& spec,
                                  const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                                  const std::string& id) const {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  if (!id.empty()) line["id"] = bounded_json<nlohmann::ordered_json>(id);
  const auto compiled = grammar::Grammar::compile(spec, vocabulary);
  if (!compiled) {
    const grammar::Refusal& refusal = compiled.error();
    if (cases.empty())
      return fail(
          {ErrorCode::kInvalidArgument, fmt::format("{}: {}: {}", grammar::name_of(refusal.kind),
                                                    refusal.where, refusal.message)});
    return kExitOk;
  }
  GrammarSampler sampler(*compiled, seed, wander, max_tokens);
  for (int i = 0; i < n_samples; ++i) {
    const GrammarSampler::Text drawn = sampler.draw();
    line["text"] = drawn.text;
    line["complete"] = drawn.complete;
    if (!drawn.failure.empty())
      return fail({ErrorCode::kInvalidArgument, "grammar sample: " + drawn.failure});
    if (drawn.dead_end)
      return fail({ErrorCode::kInternal,
                   "grammar sample: no token is allowed behind " + line["text"].dump()});
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return kExitOk;
}

int GrammarCommand::run_sample() const {
  auto tokenizer = open_tokenizer(model);
  if (!tokenizer) return fail(tokenizer.error());
  const auto vocabulary = grammar::Vocabulary::make(**tokenizer);
  if (vocabulary->ends().empty())
    return fail(
        {ErrorCode::kUnsupported, "grammar sample: the tokenizer has no end-of-generation token"});
  if (!cases.empty()) {
    return for_each_case([&](const JsonValue& line, const GrammarSpec& spec) {
      return print_samples(spec, vocabulary, member_text(line, "id"));
    });
  }
  auto one = spec();
  if (!one) return fail(one.error());
  return print_samples(*one, vocabulary, "");
}

int GrammarCommand::run_show() const {
  auto one = spec();
  if (!one) return fail(one.error());
  const auto compiled = grammar::Grammar::compile(*one, nullptr);
  if (!compiled) {
    const grammar::Refusal& refusal = compiled.error();
    const ErrorCode code = refusal.kind == grammar::RefusalKind::kInvalid
                               ? ErrorCode::kInvalidArgument
                               : ErrorCode::kUnsupported;
    return fail({code, fmt::format("{}: {}: {}", grammar::name_of(refusal.kind), refusal.where,
                                   refusal.message)});
  }
  fmt::print("{}", grammar::summary_of((*compiled)->program()));
  for (const grammar::Note& note : (*compiled)->notes())
    fmt::print("note: {}: {}\n", note.where, note.message);
  return kExitOk;
}

}  // namespace

Action add_grammar(CLI::App& app) {
  auto command = std::make_shared<GrammarCommand>(app);
  return [command] {
    if (command->sample->parsed()) return command->run_sample();
    return command->check->parsed() ? command->run_check() : command->run_show();
  };
}

}  // namespace penstock
