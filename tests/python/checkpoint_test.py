"""What the files of a model decide: quantization by its name of vLLM's, load_format, hf_overrides."""
import json
import os

import pytest

import penstock
from conftest import ROOT, SMALL
from penstock import SamplingParams

FLOATS = str(ROOT / "models/penstock-stories-1m-bf16")  # SMALL's weights, as they were trained
PROBE = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0)


def surprise(llm):
    rows = llm.generate("Once upon a time there was a little dog.", PROBE, use_tqdm=False)[0].prompt_logprobs[1:]
    return sum(next(iter(row.values())).logprob for row in rows)


@pytest.fixture(scope="module")
def plain():
    with penstock.LLM(FLOATS) as llm:
        return surprise(llm), llm.info["weight_bytes"]


@pytest.mark.parametrize("arguments, encoding", [
    ({"quantization": "bitsandbytes"}, "nf4"), ({"quantization": "bitsandbytes", "load_format": "bitsandbytes"}, "nf4"),
    ({"load_in_4bit": True}, "nf4"), ({"load_in_8bit": True}, "int8"), ({"quantization": "bitsandbytes", "load_in_8bit": True}, "int8"),
    ({"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}}, "fp4"), ({"quantization": "fp8"}, "fp8"),
    ({"quantization": "q4_0"}, "q4_0"), ({"quantization": "bitsandbytes", "quantize": "nf4"}, "nf4")])
def test_weights_of_full_precision_are_rounded(plain, arguments, encoding):
    with penstock.LLM(FLOATS, **arguments) as llm:
        assert llm.config["quantize"] == encoding and llm.model_config.quantization == encoding
        assert surprise(llm) != plain[0] and llm.info["weight_bytes"] < plain[1]


@pytest.mark.parametrize("method", ["awq", "awq_marlin", "gptq", "gptq_marlin", "gguf", "compressed-tensors", "auto-round", "mxfp4",
                                    "modelopt", "torchao", "experts_int8", "hqq", "quark"])
def test_methods_that_the_files_do_not_have_are_refused(method):
    with pytest.raises(ValueError, match=f"quantization: '{method}' was asked for, and .* is not quantized"):
        penstock.LLM(FLOATS, quantization=method)


@pytest.mark.parametrize("arguments, words", [
    ({"quantization": "bitsandbytes"}, "quantized by gguf"), ({"quantization": "awq"}, "quantized by gguf"),
    ({"load_in_8bit": True}, "quantized by gguf"), ({"load_format": "safetensors"}, "is a GGUF file"),
    ({"hf_overrides": {"rope_theta": 5.0}}, "Hugging Face directory")])
def test_what_a_gguf_file_is_not(arguments, words):
    with pytest.raises(ValueError, match=words):
        penstock.LLM(SMALL, **arguments)


def test_what_a_gguf_file_is():
    with penstock.LLM(SMALL, quantization="gguf", load_format="gguf") as llm:
        assert llm.config["quantize"] == "" and llm.model_config.quantization == "gguf"
    with pytest.raises(ValueError, match="load_format"):
        penstock.LLM(FLOATS, load_format="gguf")


@pytest.mark.parametrize("kind, asked", [("gptq", "gptq"), ("gptq", "gptq_marlin"), ("awq", "awq_marlin"), ("fp8", "fp8"),
                                         ("bitsandbytes", "bitsandbytes"), ("compressed-tensors", "compressed-tensors")])
def test_the_method_of_the_files_may_be_named(tmp_path, kind, asked):
    from penstock import _checkpoint
    from penstock.engine_args import EngineArgs
    for name in os.listdir(FLOATS):
        os.symlink(os.path.join(FLOATS, name), tmp_path / name)
    config = json.loads((tmp_path / "config.json").read_text())
    os.remove(tmp_path / "config.json")
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": kind}}))
    opening = EngineArgs(tmp_path, quantization=asked, runner="generate").opening
    try:
        found = _checkpoint.found(opening)
    except ValueError as error:  # of the files, which have no such tensors
        pytest.fail(str(error)) if "was asked for" in str(error) else None
        return
    assert found.method == kind and "quantize" not in opening.config


def test_overrides_change_the_configuration(plain):
    with penstock.LLM(FLOATS, hf_overrides={"rope_theta": 500.0, "max_position_embeddings": 128}) as llm:
        assert surprise(llm) != plain[0] and llm.info["max_model_len"] == 128
        assert llm.model_config.hf_config.rope_theta == 500.0
        folder = llm.args.config["model"]
        llm.sleep()
        llm.wake_up()
        assert surprise(llm) != plain[0]
    del llm
    assert not os.path.exists(folder)
    with pytest.raises(ValueError, match="'rope_thetaa' is no field"):
        penstock.LLM(FLOATS, hf_overrides={"rope_thetaa": 1})
    with penstock.LLM(FLOATS, hf_overrides={"rope_theta": 10000.0}) as llm:
        assert surprise(llm) == plain[0]


def test_overrides_of_rope_settings_count_wherever_the_file_has_them(tmp_path):
    """transformers 5 writes rope_parameters; what is overridden under the older names acts all the same."""
    import shutil
    folder = tmp_path / "newer"
    shutil.copytree(FLOATS, folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("rope_scaling", None)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta", 10000.0)}
    (folder / "config.json").write_text(json.dumps(config))

    def with_overrides(**fields):
        with penstock.LLM(str(folder), hf_overrides=fields) as llm:
            return surprise(llm)
    with penstock.LLM(FLOATS) as llm:
        plain = surprise(llm)
    assert with_overrides(rope_theta=10000.0) == plain
    other = with_overrides(rope_theta=500.0)
    assert other != plain and other == with_overrides(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    scaled = with_overrides(rope_scaling={"rope_type": "linear", "factor": 4.0})
    assert scaled != plain and scaled == with_overrides(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})
    config["rope_parameters"] = {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="differs by layer"):
        penstock.LLM(str(folder), hf_overrides={"rope_theta": 500.0})
