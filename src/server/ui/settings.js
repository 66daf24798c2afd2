// The settings panel: one table of request parameters, from which the form and the request are made.
import { $, element } from "./dom.js";
import { save_settings, settings } from "./store.js";

// name in the API, label, kind, limits, where the slider stands while the field is empty, explanation
const kParams = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, at: 1, help: "0 always takes the likeliest token; higher is more varied" },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01, at: 1, help: "Only the likeliest tokens that together have this probability" },
  { name: "top_k", label: "Top k", min: 0, max: 200, step: 1, at: 0, help: "Only this many of the likeliest tokens; 0 is all of them" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, at: 0, help: "Only tokens at least this likely, relative to the likeliest" },
  { name: "max_tokens", label: "Most tokens", min: 1, max: 1000000, step: 1, help: "Where a reply ends at the latest" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.01, at: 1, help: "Above 1, tokens that have occurred become less likely" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, at: 0, help: "Subtracted once for a token that the reply already holds" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, at: 0, help: "Subtracted for each time the reply already holds the token" },
  { name: "seed", label: "Seed", min: 0, max: 9007199254740991, step: 1, help: "The same seed gives the same reply" },
  { name: "stop", label: "Stop strings, one per line", long: true, help: "The reply ends before any of them; \\n is a line end" },
];

function param_row(param, onchange) {
  const id = `param-${param.name}`;
  const label = element("label", { for: id, title: param.help }, param.label);
  if (param.long) {
    const area = element("textarea", { id, rows: "2", spellcheck: "false", oninput: () => onchange(param, area.value) });
    return { row: element("div", { class: "param long" }, label, area), set: (value) => (area.value = value ?? "") };
  }
  const limits = { min: param.min, max: param.max, step: param.step };
  const number = element("input", { id, type: "number", placeholder: "default", inputmode: param.step < 1 ? "decimal" : "numeric", title: param.help, ...limits });
  const slider = param.at === undefined ? null : element("input", { type: "range", tabindex: "-1", "aria-hidden": "true", ...limits });
  const row = element("div", { class: "param" }, label, number, slider);
  const set = (value) => {
    number.value = value ?? "";
    row.toggleAttribute("data-unset", value === undefined);
    if (slider) slider.value = value ?? param.at;
  };
  number.addEventListener("input", () => {
    const valid = number.value !== "" && number.validity.valid;
    row.toggleAttribute("data-unset", !valid);
    if (slider) slider.value = valid ? number.value : param.at;
    if (valid || number.value === "") onchange(param, valid ? Number(number.value) : undefined);
  });
  slider?.addEventListener("input", () => {
    set(Number(slider.value));
    onchange(param, Number(slider.value));
  });
  return { row, set };
}

const unescape = (text) => text.replace(/\\(n|t|\\)/g, (_, c) => ({ n: "\n", t: "\t", "\\": "\\" })[c]);

// The user's own fields of a request. Throws when "more fields" is not a JSON object.
export function request_fields() {
  const fields = {};
  for (const { name } of kParams) {
    const value = settings.params[name];
    if (value === undefined || value === "") continue;
    fields[name] = name === "stop" ? value.split("\n").filter((line) => line !== "").map(unescape) : value;
  }
  return { ...fields, ...parse_extra() };
}

function parse_extra() {
  if (settings.extra.trim() === "") return {};
  const value = JSON.parse(settings.extra);
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("expected a JSON object");
  return value;
}

function show_extra_error() {
  try {
    parse_extra();
    $("extra-error").textContent = "";
  } catch (error) {
    $("extra-error").textContent = `Not sent: ${error.message}`;
  }
}

// hooks: {onmodel, onkey, onmode, ondisplay}, called after the change is kept.
export function build_settings(hooks) {
  const rows = kParams.map((param) => param_row(param, (changed, value) => {
    if (value === undefined || value === "") delete settings.params[changed.name];
    else settings.params[changed.name] = value;
    save_settings();
  }));
  $("params").append(...rows.map((one) => one.row));
  const show_params = () => rows.forEach((one, i) => one.set(settings.params[kParams[i].name]));
  show_params();
  $("reset-params").addEventListener("click", () => {
    settings.params = {};
    save_settings();
    show_params();
  });

  const bind = (id, name, event, property, hook) => {
    $(id)[property] = settings[name];
    $(id).addEventListener(event, () => {
      settings[name] = $(id)[property];
      save_settings();
      hook?.();
    });
  };
  bind("model", "model", "change", "value", hooks.onmodel);
  bind("mode", "mode", "change", "value", hooks.onmode);
  bind("api-key", "api_key", "change", "value", hooks.onkey);
  bind("remember-key", "remember_key", "change", "checked");
  bind("system", "system", "input", "value");
  bind("logprobs", "logprobs", "change", "checked");
  bind("heat", "heat", "change", "checked", hooks.ondisplay);
  bind("extra", "extra", "input", "value", show_extra_error);
  show_extra_error();
  $("settings-form").addEventListener("submit", (event) => event.preventDefault());
}

// names: of the MCP servers that the operator has configured. A chat uses the tools of those that are ticked.
export function show_servers(names) {
  $("servers-row").hidden = names.length === 0;
  const row = (name) => {
    const box = element("input", { type: "checkbox", checked: !settings.servers_off.includes(name), onchange: () => {
      settings.servers_off = settings.servers_off.filter((one) => one !== name).concat(box.checked ? [] : [name]);
      save_settings();
    } });
    return element("label", { class: "check" }, box, name);
  };
  $("servers").replaceChildren(...names.map(row));
}

// models: as /v1/models lists them. Those that give no text cannot be chosen here.
export function show_models(models) {
  const texts = models.filter((one) => one.runner !== "pooling");
  if (!texts.some((one) => one.id === settings.model)) settings.model = texts[0]?.id ?? models[0]?.id ?? "";
  const options = models.map(({ id, state, runner }) => {
    const note = runner === "pooling" ? " · vectors" : state === "loaded" ? "" : ` · ${state}`;
    return element("option", { value: id, disabled: runner === "pooling" }, `${id}${note}`);
  });
  const same = options.length === $("model").options.length && options.every((one, i) => one.isEqualNode($("model").options[i]));
  if (!same) $("model").replaceChildren(...options);
  $("model").value = settings.model;
  show_model_state(models.find((one) => one.id === settings.model));
}

function show_model_state(model) {
  const texts = { loaded: `Loaded, ${model?.max_model_len} tokens of context`, loading: "Being loaded", unloading: "Being unloaded",
                  unloaded: "Not loaded: choosing it or writing to it does", failed: `Cannot be loaded: ${model?.error}` };
  $("model-state").textContent = texts[model?.state] ?? "";
}
