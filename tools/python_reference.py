"""The page docs/reference/python.md (tools/make_reference.py) from the signatures and docstrings of the installed package."""
import dataclasses
import inspect
import re

import penstock

CLASSES = ["LLM", "AsyncLLM", "LLMEngine", "EngineArgs", "SamplingParams", "StructuredOutputsParams", "BeamSearchParams", "PoolingParams", "PoolerConfig",
           "RequestOutput", "CompletionOutput", "Logprob", "RequestStateStats", "Tokenizer", "openai_server", "EngineError",
           "get_include", "get_cmake_dir"]


def plain(text):
    """Returns a signature with unqualified names."""
    text = re.sub(r"\b(?:penstock|typing|collections\.abc)(?:\.\w+)*\.(\w+)", r"\1", text)
    return re.sub(r"\(self(?:, )?", "(", text).replace("'", "").replace("NoneType", "None")


def indented(doc):
    """Formats the sections of a docstring as text."""
    return inspect.cleandoc(doc).replace("    ", "  ")


def fields_of(cls):
    for field in dataclasses.fields(cls):
        default = ""
        if field.default is not dataclasses.MISSING:
            default = f" = {field.default!r}"
        elif field.default_factory is not dataclasses.MISSING:
            default = f" = {field.default_factory()!r}"
        yield f"{field.name}: {plain(str(field.type))}{plain(default)}"


def members_of(cls):
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield name, inspect.getdoc(member) or ""
        function = member.__func__ if isinstance(member, classmethod) else member
        if inspect.isfunction(function):
            yield f"{name}{plain(str(inspect.signature(function)))}", inspect.getdoc(function) or ""


def reference():
    parts = []
    for name in CLASSES:
        thing = getattr(penstock, name)
        parts.append(f"## {name}\n")
        if inspect.isfunction(thing):
            parts.append(f"```text\n{name}{plain(str(inspect.signature(thing)))}\n\n{indented(thing.__doc__)}\n```\n")
            continue
        lines = [indented(thing.__doc__ or "")]
        if dataclasses.is_dataclass(thing):
            lines += ["", *fields_of(thing)]
        for signature, doc in members_of(thing):
            lines += ["", signature, *("    " + line if line else "" for line in indented(doc).splitlines())]
        parts.append("```text\n" + "\n".join(lines).strip() + "\n```\n")
    return "\n".join(parts)
