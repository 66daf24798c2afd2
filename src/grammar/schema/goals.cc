#include "grammar/schema/goals.h"

#include <algorithm>

#include "grammar/schema/membership.h"
#include "grammar/schema/scalars.h"

namespace penstock::grammar {

Compiled<uint32_t> GoalMaker::run() {
  const uint32_t root = goal_of({SignedSchema(0)}, ValueSpelling::kAny);
  while (!todo_.empty()) {
    const auto it = todo_.back();
    todo_.pop_back();
    if (auto done = make(it->first, it->second); !done)
      return tl::unexpected(std::move(done).error());
    if (expansion_.failed()) return tl::unexpected(expansion_.refusal());
    if (budget_.exhausted()) return at(too_large(kTooMuchWork), it->first);
    if (exprs_.exhausted()) return at(too_large("the patterns are too large together"), it->first);
  }
  auto goal =
      root == kNone ? Compiled<uint32_t>(kNone) : finish_goals(drafts_, exprs_, budget_, program_);
  if (!goal)
    return at(tl::unexpected<Refusal>(goal.error()), {{SignedSchema(0)}, ValueSpelling::kAny});
  if (budget_.exhausted())
    return at(too_large(kTooMuchWork), {{SignedSchema(0)}, ValueSpelling::kAny});
  if (*goal == kNone)
    return refuse(RefusalKind::kInvalid, "#",
                  "no value fulfils the schema: what it asks for contradicts itself");
  return goal;
}

// Resolves schemas that only refer to another schema.
SignedSchema GoalMaker::resolved(SignedSchema schema) const {
  SchemaId id = schema.id();
  for (int i = 0; i < 64 && schemas_[id].all_of.size() == 1; ++i) {
    Schema alone;
    alone.where = schemas_[id].where;
    alone.all_of = schemas_[id].all_of;
    if (!(alone == schemas_[id])) break;
    id = schemas_[id].all_of.front();
  }
  return SignedSchema(id, schema.negated());
}

uint32_t GoalMaker::goal_of(Conjunction conjunction, ValueSpelling spelling) {
  const SignedSchema anything(schemas_.anything()), nothing(schemas_.nothing());
  for (SignedSchema& schema : conjunction) schema = resolved(schema);
  std::erase_if(conjunction, [&](SignedSchema s) { return s == anything || s == !nothing; });
  normalize(conjunction);
  for (size_t i = 0; i < conjunction.size(); ++i) {
    if (conjunction[i] == nothing || conjunction[i] == !anything) return kNone;
    if (i > 0 && conjunction[i] == !conjunction[i - 1]) return kNone;
  }
  const auto [it, is_new] = goals_.emplace(Key{std::move(conjunction), spelling},
                                           static_cast<uint32_t>(drafts_.goals.size()));
  if (is_new) {
    drafts_.goals.emplace_back();
    todo_.push_back(it);
  }
  return it->second;
}

// Sets the position of a refusal without one to that of the first schema.
tl::unexpected<Refusal> GoalMaker::at(tl::unexpected<Refusal> failed, const Key& key) const {
  Refusal refusal = std::move(failed).value();
  if (refusal.where.empty())
    refusal.where =
        key.conjunction.empty() ? "#" : schemas_[key.conjunction.front().id()].where.text();
  return tl::unexpected<Refusal>(std::move(refusal));
}

Compiled<void> GoalMaker::make(const Key& key, uint32_t goal) {
  if (!budget_.take_schemas(1))
    return at(too_large("the schema has too many combinations of subschemas"), key);
  GoalDraft draft;
  for (int type = 0; type < kNumValueTypes; ++type) {
    if (auto done = add_type(key, static_cast<ValueType>(type), draft); !done)
      return at(tl::unexpected<Refusal>(done.error()), key);
  }
  drafts_.goals[goal] = std::move(draft);
  return {};
}

Compiled<void> GoalMaker::add_type(const Key& key, ValueType type, GoalDraft& draft) {
  std::vector<FormulaId> parts;
  for (const SignedSchema schema : key.conjunction)
    parts.push_back(expansion_.expand(schema, type));
  const FormulaId formula = expansion_.pool().all_of(std::move(parts));
  if (formula == FormulaPool::kFalse || expansion_.failed() || budget_.exhausted()) return {};
  const auto add = [](Compiled<std::vector<uint32_t>> leaves,
                      std::vector<uint32_t>& to) -> Compiled<void> {
    if (!leaves) return tl::unexpected(std::move(leaves).error());
    to.insert(to.end(), leaves->begin(), leaves->end());
    return {};
  };
  switch (type) {
    case ValueType::kNull:
    case ValueType::kFalse:
    case ValueType::kTrue: draft.scalars.push_back(leaves_.word(type)); return {};
    case ValueType::kNumber: return add(leaves_.numbers(formula, key.spelling), draft.scalars);
    case ValueType::kString: return add(leaves_.strings(formula, key.spelling), draft.strings);
    default: break;
  }
  if (key.spelling == ValueSpelling::kAny) return add_composite(formula, type, draft);
  return refuse(
      RefusalKind::kUnsupported, "",
      "uniqueItems is enforced for items that are strings, numbers, true, false or null only",
      "uniqueItems");
}

Compiled<void> GoalMaker::add_composite(FormulaId formula, ValueType type, GoalDraft& draft) {
  const auto alternatives = without_choices_of_values(expansion_.pool(), formula);
  if (!alternatives) return too_large("too many alternatives about one value");
  for (const FormulaId alternative : *alternatives) {
    if (const auto* list = listed_values(expansion_.pool(), alternative)) {
      const std::vector<const JsonValue*> values = *list;  // a copy: the pool grows
      for (const JsonValue* value : values) {
        if (!holds(expansion_, alternative, *value)) continue;
        if (auto done = add_value(*value, draft); !done) return done;
      }
      continue;
    }
    auto clauses = clauses_.find(alternative);
    if (!clauses) return too_large("too many alternatives about one value");
    if (type == ValueType::kObject) clauses_.close(*clauses);
    for (const Clause& clause : *clauses) {
      if (type == ValueType::kArray) {
        auto array = draft_array(*this, clause);
        if (!array) return tl::unexpected(std::move(array).error());
        draft.arrays.push_back(static_cast<uint32_t>(drafts_.arrays.size()));
        drafts_.arrays.push_back(*std::move(array));
      } else if (auto done = add_objects(clause, draft); !done) {
        return done;
      }
    }
  }
  return {};
}

void GoalMaker::add_object(ObjectDraft object, GoalDraft& draft) {
  draft.objects.push_back(static_cast<uint32_t>(drafts_.objects.size()));
  drafts_.objects.push_back(std::move(object));
}

Compiled<void> GoalMaker::add_objects(const Clause& clause, GoalDraft& draft) {
  auto told = told_existences(*this, clause);
  if (!told) return tl::unexpected(std::move(told).error());
  if (!*told) return too_large("too many alternatives about one value");
  for (const Clause& each : **told) {
    if (auto done = add_told_objects(each, draft); !done) return done;
  }
  return {};
}

Compiled<void> GoalMaker::add_told_objects(const Clause& clause, GoalDraft& draft) {
  const std::vector<Keys> orders = key_orders(*this, clause);
  if (any_member_order_) {
    auto object = draft_object_any_order(*this, clause, orders.front());
    if (!object) return tl::unexpected(std::move(object).error());
    if (*object) return add_object(**std::move(object), draft), Compiled<void>();
  }
  for (const Keys& order : orders) {
    auto object = draft_object(*this, clause, order);
    if (!object) return tl::unexpected(std::move(object).error());
    add_object(*std::move(object), draft);
  }
  return {};
}

// Adds the object with exactly these members, in any order.
void GoalMaker::add_listed_object(const JsonValue& value, GoalDraft& draft) {
  ObjectDraft object;
  object.any_order = true;
  object.required.assign(value.members.size(), true);
  ObjectDraft::State& state = object.states.emplace_back();
  state.accepts = true;
  for (const JsonMember& member : value.members) {
    object.slots.push_back(member.key);
    state.any.push_back({{goal_of_value(member.value), 0}});
  }
  add_object(std::move(object), draft);
}

// Adds a listed array or object: items in order; a few members in any order, more of them in the
// written order.
Compiled<void> GoalMaker::add_value(const JsonValue& value, GoalDraft& draft) {
  const auto n = static_cast<uint32_t>(value.members.size());
  if (!budget_.take_states(n + 1)) return too_large("the listed values are too large");
  if (value.is_array()) {
    ArrayDraft array;
    array.states.resize(n + 1);
    for (uint32_t i = 0; i < n; ++i)
      array.states[i].edges.push_back({goal_of_value(value.members[i].value), i + 1});
    array.states[n].accepts = true;
    draft.arrays.push_back(static_cast<uint32_t>(drafts_.arrays.size()));
    drafts_.arrays.push_back(std::move(array));
    return {};
  }
  if (any_member_order_) return add_listed_object(value, draft), Compiled<void>();
  std::vector<Keys> keys;
  for (const JsonMember& member : value.members) keys.push_back({member.key});
  for (const Keys& order : orders_of(keys)) {
    ObjectDraft object;
    object.states.resize(n + 1);
    object.slots = order;
    for (uint32_t i = 0; i < n; ++i) {
      object.states[i].slot = i;
      object.states[i].values.push_back({goal_of_value(*value.find(order[i])), i + 1});
    }
    object.states[n].accepts = true;
    add_object(std::move(object), draft);
  }
  return {};
}

}  // namespace penstock::grammar
