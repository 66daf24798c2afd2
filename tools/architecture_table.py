#!/usr/bin/env python3
"""README's table of architectures, from THE lists (src/model/arch/archs.cc, classics.cc, mixtures.cc, scans.cc, encoders.cc). Usage: architecture_table.py [--check]."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- architectures: tools/architecture_table.py -->", "<!-- end of architectures -->"
# How people call them, where the class name of transformers does not say it.
NAMES = {"phi": "Phi-2", "phi3": "Phi-3, 3.5, 4", "llama": "Llama 1 to 3.3", "mistral": "Mistral", "cohere": "Command-R",
         "cohere2": "Cohere 2 (Command-R7B)", "gpt_neox": "GPT-NeoX, Pythia", "qwen2": "Qwen 2, 2.5", "glm4_moe": "GLM-4.5, 4.6",
         "gemma3_text": "Gemma 3", "gemma3n_text": "Gemma 3n (text, also of `gemma3n`)", "gemma4_text": "Gemma 4", "bert": "BERT (encoder)", "roberta": "RoBERTa, XLM-R, CamemBERT (encoders)", "nomic_bert": "Nomic-BERT (encoder)",
         "modernbert": "ModernBERT (encoder)", "distilbert": "DistilBERT (encoder)", "electra": "ELECTRA (encoder)", "jina_embeddings_v3": "Jina Embeddings v3 (encoder)", "gte": "GTE (encoder)", "eurobert": "EuroBERT (encoder)", "bitnet": "BitNet b1.58", "gpt2": "GPT-2", "gpt_oss": "gpt-oss", "seed_oss": "Seed-OSS",
         "ernie4_5": "ERNIE 4.5", "hunyuan_v1_dense": "Hunyuan (dense)", "glm4": "GLM-4", "glm4v_text": "GLM-4V (text, also of `glm4v`)", "exaone4": "EXAONE 4",
         "ministral3": "Ministral 3", "llama4_text": "Llama 4 (text, also of `llama4`)", "mpt": "MPT", "bloom": "BLOOM", "gemma2": "Gemma 2", "qwen2_moe": "Qwen2-MoE", "qwen3_moe": "Qwen3-MoE",
         "stablelm": "StableLM", "starcoder2": "StarCoder2", "olmo2": "OLMo 2", "olmo3": "OLMo 3",
         "gpt_bigcode": "StarCoder, SantaCoder (GPT-BigCode)", "gptj": "GPT-J", "gpt_neo": "GPT-Neo", "biogpt": "BioGPT", "exaone": "EXAONE 3, 3.5", "youtu": "Youtu-LLM", "minicpm3": "MiniCPM3", "nanochat": "nanochat", "xglm": "XGLM", "afmoe": "AFMoE (Trinity)", "flex_olmo": "FlexOlmo", "internlm3": "InternLM 3", "iquestcoder": "IQuest-Coder", "opt": "OPT", "olmo": "OLMo", "mamba2": "Mamba 2", "falcon_h1": "Falcon-H1", "nemotron_h": "Nemotron-H", "granitemoehybrid": "Granite 4", "granitemoe": "Granite MoE (also `granitemoeshared`)", "phimoe": "Phi-3.5-MoE", "deepseek_v2": "DeepSeek V2", "deepseek_v3": "DeepSeek V3, R1, Kimi K2",
         "glm4_moe_lite": "GLM-4.7-Flash", "minimax_m2": "MiniMax-M2", "ernie4_5_moe": "ERNIE 4.5 (experts)", "qwen3_next": "Qwen3-Next", "mistral4": "Mistral 4", "solar_open": "Solar Open", "dots1": "dots.llm1",
         "exaone_moe": "K-EXAONE", "hunyuan_v1_moe": "Hunyuan (experts)", "hy_v3": "Hy3", "olmoe": "OLMoE", "granite_swa": "Granite with windows (also `granitemoe_swa`)",
         "nemotron": "Nemotron 4, Minitron", "jais2": "Jais 2", "glm": "GLM-4 (9B, first)", "cwm": "CWM", "hyperclovax": "HyperCLOVA X SEED", "lfm3": "LFM3", "kimi_linear": "Kimi Linear",
         "qwen2_vl_text": "Qwen2-VL, Qwen2.5-VL (text, also of `qwen2_vl`, `qwen2_5_vl`)", "qwen3_vl_text": "Qwen3-VL (text, also of `qwen3_vl`)",
         "qwen3_vl_moe_text": "Qwen3-VL with experts (text, also of `qwen3_vl_moe`)",
         "qwen3_5_text": "Qwen3.5 (text, also of `qwen3_5`)", "qwen3_5_moe_text": "Qwen3.5 with experts (text, also of `qwen3_5_moe`)"}
# Two rows of one type.
BY_GGUF_NAME = {"gemma-embedding": "EmbeddingGemma (encoder)", "nemotron_h_moe": "Nemotron-H with experts, Nemotron 3"}
# In GGUF these go by another architecture's name.
GGUF_NAMES = {"bamba": "granitehybrid", "roberta": "bert", "distilbert": "bert", "mistral": "llama", "mixtral": "llama", "internlm3": "llama", "iquestcoder": "llama", "olmo3": "olmo2", "deepseek3": "deepseek2", "youtu": "deepseek2", "solaropen": "glm4moe", "glm4moelite": "deepseek2"}

# Read from directories; their GGUF files were not tried.
DIRECTORIES_ONLY = {"electra", "jina-v3", "gte", "eurobert"}


def rows(source):
    """(transformers' type, its class, GGUF's name) of every row that both formats have."""
    types = {name: re.findall(r'"([^"]+)"', body)
             for name, body in re.findall(r"constexpr std::string_view (k\w+)\[\] = \{([^}]*)\}", source)}
    listed = source[source.index("kArchitectures[] = {"):]
    for name, used in re.findall(r'\{(?:\.name = )?"([^"]+)",\s*(?:\.hf_types = )?(k\w+),', listed):
        kind, cls = types[used][0], next(t for t in types[used] if t[0].isupper())
        yield kind, cls, GGUF_NAMES.get(name, name)


def table(source):
    lines = ["| model | `model_type` | GGUF |", "|---|---|---|"]
    for kind, cls, gguf in sorted(rows(source), key=lambda row: NAMES.get(row[0], row[1]).lower()):
        name = BY_GGUF_NAME.get(gguf) or NAMES.get(kind, re.sub(r"(ForCausalLM|LMHeadModel)$", "", cls))
        lines.append(f"| {name} | `{kind}` | {'–' if gguf in DIRECTORIES_ONLY else f'`{gguf}`'} |")
    return "\n".join(lines)


def main():
    source = "".join((ROOT / "src/model/arch" / name).read_text() for name in ("archs.cc", "classics.cc", "mixtures.cc", "scans.cc", "encoders.cc"))
    path = ROOT / "README.md"
    text = path.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    new = text[:begin] + "\n" + table(source) + "\n" + text[end:]
    if "--check" not in sys.argv[1:]:
        path.write_text(new)
    elif new != text:
        sys.exit("README.md: the table of architectures is not that of archs.cc: run tools/architecture_table.py")


if __name__ == "__main__":
    main()
