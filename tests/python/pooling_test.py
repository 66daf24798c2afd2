"""Vectors and scores, beside sentence-transformers' (golden files) and numpy."""
import json

import numpy
import pytest

import penstock
from conftest import ROOT, STORIES
from penstock import PoolingParams

SENTENCES = ROOT / "tests/golden/sentences"


@pytest.fixture(scope="module")
def model():
    with penstock.LLM(str(SENTENCES / "mean_normalized")) as llm:
        yield llm


@pytest.mark.parametrize("name", ["mean_normalized", "max", "dense"])
def test_is_sentence_transformers(name):
    cases = [case for case in json.loads((SENTENCES / name / "golden.json").read_text()) if case["prompt_name"] is None]
    with penstock.LLM(str(SENTENCES / name)) as llm:
        assert llm.args.runner == "pooling"
        outputs = llm.embed([case["text"] for case in cases], use_tqdm=False,
                            pooling_params=PoolingParams(truncate_prompt_tokens=-1))
        for case, output in zip(cases, outputs):
            assert numpy.abs(numpy.array(output.outputs.embedding) - case["embedding"]).max() < 1e-5
            assert output.outputs.hidden_size == len(case["embedding"]) and output.finished


def test_dimensions_and_normalisation(model):
    whole = numpy.array(model.embed("A text")[0].outputs.embedding)
    assert numpy.linalg.norm(whole) == pytest.approx(1, abs=1e-5)
    part = numpy.array(model.embed("A text", pooling_params=PoolingParams(dimensions=8))[0].outputs.embedding)
    assert part == pytest.approx(whole[:8] / numpy.linalg.norm(whole[:8]), abs=1e-5)
    raw = model.encode("A text", PoolingParams(use_activation=False), pooling_task="embed")[0].outputs.data
    assert raw.dtype == numpy.float32 and numpy.linalg.norm(raw) != pytest.approx(1, abs=1e-3)


def test_vectors_of_tokens(model):
    raw = PoolingParams(use_activation=False)
    of_tokens = model.encode(["The cat sat.", "A dog"], raw, pooling_task="token_embed")
    pooled = model.embed(["The cat sat.", "A dog"], pooling_params=raw)
    for tokens, one in zip(of_tokens, pooled):
        assert tokens.prompt_token_ids == one.prompt_token_ids
        assert tokens.outputs.data.shape == (len(tokens.prompt_token_ids), len(one.outputs.embedding))
        assert tokens.outputs.data.mean(axis=0) == pytest.approx(numpy.array(one.outputs.embedding), abs=1e-5)
    shaped = model.encode("The cat sat.", PoolingParams(dimensions=8), pooling_task="token_embed")[0].outputs.data
    assert numpy.linalg.norm(shaped, axis=1) == pytest.approx(numpy.ones(len(shaped)), abs=1e-5) and shaped.shape[1] == 8


def test_truncation_to_a_number_of_tokens(model):
    whole = model.embed("the cat sat on a mat")[0].prompt_token_ids
    cut = model.embed("the cat sat on a mat", pooling_params=PoolingParams(truncate_prompt_tokens=4))[0]
    assert cut.prompt_token_ids == whole[:3] + whole[-1:]  # the special token at the end stays
    assert model.embed({"prompt_token_ids": cut.prompt_token_ids})[0].outputs.embedding == cut.outputs.embedding


def test_too_long_texts_are_cut_only_when_asked(model):
    long = "word " * 2000
    for options in ({"truncation": True}, {"truncation": "longest_first"}):
        assert len(model.embed(long, tokenization_kwargs=options)) == 1
    for options in (None, {"truncation": False}, {"truncation": "do_not_truncate"}):
        with pytest.raises(ValueError, match="tokens"):
            model.embed(long, tokenization_kwargs=options)


def test_scores(model):
    texts = ["The cat sat.", "A cat sits.", "Stock markets fell."]
    vectors = numpy.array([output.outputs.embedding for output in model.embed(texts)])
    scores = [output.outputs.score for output in model.score(texts[0], texts)]
    assert scores == pytest.approx(list(vectors @ vectors[0]), abs=1e-5)
    pairs = [output.outputs.score for output in model.score(texts[:2], texts[1:])]
    assert pairs == pytest.approx([vectors[0] @ vectors[1], vectors[1] @ vectors[2]], abs=1e-5)
    with pytest.raises(ValueError, match="as many"):
        model.score(texts[:2], texts)


def test_late_interaction():
    """Scores of a model that gives vectors of tokens are sums of the largest products."""
    query, documents = "What is it?", ["It is a cat.", "A dog."]
    with penstock.LLM(str(SENTENCES / "mean_normalized"), pooler_config={"task": "token_embed"}) as llm:
        scores = [output.outputs.score for output in llm.score(query, documents, use_tqdm=False)]
        left, *rights = [output.outputs.data for output in llm.encode([query, *documents], use_tqdm=False)]
        assert scores == pytest.approx([float((left @ right.T).max(axis=1).sum()) for right in rights], abs=1e-5)
        assert numpy.array_equal(llm.embed(query, use_tqdm=False)[0].outputs.data, left)


def test_torch_takes_arrays(model):
    torch = pytest.importorskip("torch")
    one, other = (output.outputs.data for output in model.encode(["A text", "A word"], pooling_task="embed", use_tqdm=False))
    found = torch.nn.functional.cosine_similarity(one[None], x2=other[None])
    assert found.tolist() == pytest.approx([float((one * other).sum())], abs=1e-5)
    assert torch.stack([one, other]).shape == (2, len(one))


def test_decoders_as_encoders():
    with penstock.LLM(STORIES, runner="pooling", pooler_config={"pooling_type": "MEAN"}) as llm:
        assert len(llm.embed(["Once", "upon"])) == 2
        with pytest.raises(ValueError, match="pooling"):
            llm.generate("Once")


def test_bad_calls(model, stories):
    with pytest.raises(ValueError, match="runner='pooling'"):
        stories.embed("x")
    with pytest.raises(ValueError, match="dimensions"):
        model.embed("x", pooling_params=PoolingParams(dimensions=100000))
    with pytest.raises(ValueError, match="token"):
        model.embed("word " * 2000)
    assert len(model.embed("word " * 2000, pooling_params=PoolingParams(truncate_prompt_tokens=-1))) == 1
    with pytest.raises(ValueError, match="pooling_task"):
        model.encode("x", pooling_task="plugin")
    with pytest.raises(ValueError, match="no classification head"):
        model.encode("x", pooling_task="token_classify")
    with pytest.raises(ValueError, match="truncate_to"):
        model.embed("x", pooling_params=PoolingParams(truncate_prompt_tokens=100000))
    with pytest.raises(ValueError, match="pooling"):
        penstock.LLM(STORIES, runner="pooling", pooler_config={"pooling_type": "BEST"}).embed("x")


def test_classifiers_are_transformers():
    folder = ROOT / "tests/golden/classifiers"
    for name in ("bert", "xlm_roberta", "qwen3"):
        golden = json.loads((folder / name / "golden.json").read_text())
        with penstock.LLM(str(folder / name), runner="pooling") as llm:
            outputs = llm.classify([{"prompt_token_ids": case["ids"]} for case in golden], use_tqdm=False)
            encoded = llm.encode([{"prompt_token_ids": case["ids"]} for case in golden], pooling_task="classify", use_tqdm=False)
            raw = llm.classify([{"prompt_token_ids": case["ids"]} for case in golden], use_tqdm=False,
                               pooling_params=PoolingParams(use_activation=False))
        assert [one.outputs.data.tolist() for one in encoded] == [one.outputs.probs for one in outputs]
        for case, output, logits in zip(golden, outputs, raw):
            assert output.outputs.probs == pytest.approx(case["probs"], abs=1e-5)
            assert logits.outputs.probs == pytest.approx(case["logits"], abs=1e-4)
            assert output.outputs.num_classes == len(case["probs"])


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_cross_encoders_are_sentence_transformers(name):
    folder = ROOT / "tests/golden/cross_encoders" / name
    golden = json.loads((folder / "golden.json").read_text())
    with penstock.LLM(str(folder)) as llm:
        outputs = llm.score([case["first"] for case in golden], [case["second"] for case in golden],
                            tokenization_kwargs={"truncate_prompt_tokens": -1})
        assert [output.outputs.score for output in outputs] == pytest.approx([case["score"] for case in golden], abs=1e-5)
        assert all(2 < len(output.prompt_token_ids) <= 40 for output in outputs)
        one = llm.score(golden[0]["first"], [golden[0]["second"]] * 3)
        assert [output.outputs.score for output in one] == pytest.approx([golden[0]["score"]] * 3, abs=1e-5)
        with pytest.raises(ValueError, match="40 tokens"):
            llm.score("word " * 100, "x")


def test_what_has_no_head(model):
    with pytest.raises(ValueError, match="no classification head"):
        model.classify("x")
    with penstock.LLM(str(ROOT / "tests/golden/classifiers/bert")) as llm, pytest.raises(ValueError, match="has 3"):
        llm.score("a", "b")


def test_classes_of_tokens():
    """A decoder's head reads the last token's state: that token's classes are the text's."""
    golden = json.loads((ROOT / "tests/golden/classifiers/llama/golden.json").read_text())
    prompts = [{"prompt_token_ids": case["ids"]} for case in golden]
    with penstock.LLM(str(ROOT / "tests/golden/classifiers/llama"), runner="pooling") as llm:
        for case, output in zip(golden, llm.encode(prompts, pooling_task="token_classify")):
            assert output.outputs.data.shape == (len(case["ids"]), len(case["probs"]))
            assert output.outputs.data[-1] == pytest.approx(case["probs"], abs=1e-5)
        raw = llm.reward(prompts, PoolingParams(use_activation=False))
        assert [one.outputs.data[-1].tolist() for one in raw] == [pytest.approx(case["logits"], abs=1e-4) for case in golden]
    with penstock.LLM(str(ROOT / "tests/golden/classifiers/bert")) as llm, pytest.raises(ValueError, match="what is pooled"):
        llm.encode([{"prompt_token_ids": [5, 6]}], pooling_task="token_classify")


def test_what_there_is_to_know(model):
    tokenizer = model.get_tokenizer()
    ids = model.embed("the cat")[0].prompt_token_ids
    assert tokenizer.encode("the cat") == ids and tokenizer.decode(ids, skip_special_tokens=True) == "the cat"
    assert model.info["dimensions"] == len(model.embed("a")[0].outputs.embedding) and model.info["max_model_len"] > 0
    before = {metric.name: metric.value for metric in model.get_metrics()}
    model.embed(["the cat", "a"])
    after = {metric.name: metric.value for metric in model.get_metrics()}
    assert after["vllm:request_success"] - before["vllm:request_success"] == 2
    assert after["vllm:prompt_tokens"] - before["vllm:prompt_tokens"] >= len(ids)
    assert model.get_supported_tasks() == ["embed", "token_embed", "score"]
    assert model.model_config.runner_type == "pooling" and model.get_world_size() == 1
    with pytest.raises(ValueError, match="no tokenizer"), penstock.LLM(str(ROOT / "tests/golden/classifiers/bert")) as llm:
        llm.get_tokenizer()


def test_requests_one_by_one(model):
    engine = model.llm_engine
    engine.add_request("a", "the cat", PoolingParams(task="embed"))
    engine.add_request("b", "a dog", PoolingParams(task="token_embed", dimensions=4))
    with pytest.raises(ValueError, match="running already"):
        engine.add_request("a", "x", PoolingParams())
    outputs = {}
    while engine.has_unfinished_requests():
        outputs.update({output.request_id: output.outputs.data for output in engine.step()})
    assert outputs["a"].tolist() == model.embed("the cat")[0].outputs.embedding and outputs["b"].shape[1] == 4


def test_threads_take_turns(model):
    import threading
    texts = [[f"text {i} of {t}" for i in range(20)] for t in range(4)]
    expected = [[output.outputs.embedding for output in model.embed(each)] for each in texts]
    found = [None] * 4

    def work(t):
        found[t] = [output.outputs.embedding for output in model.embed(texts[t])]
    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(numpy.allclose(a, b, atol=1e-6) for a, b in zip(found, expected))


def test_adapters_of_vectors():
    folder = ROOT / "tests/golden/lora_encoders/bert"
    golden = json.loads((folder / "golden.json").read_text())
    adapter = penstock.LoRARequest("law", 1, str(folder))
    base = str(ROOT / "tests/golden/encoders" / "bert")
    with penstock.LLM(base, enable_lora=True, runner="pooling", pooler_config={"pooling_type": "MEAN"}) as llm:
        prompts = [{"prompt_token_ids": case["ids"]} for case in golden]
        plain, adapted = llm.embed(prompts), llm.embed(prompts, lora_request=adapter)
        mixed = llm.embed(prompts, lora_request=[adapter] + [None] * (len(prompts) - 1))
    for case, one, other in zip(golden, plain, adapted):
        assert one.outputs.embedding != other.outputs.embedding
        assert other.outputs.embedding == pytest.approx(case["mean"], abs=1e-4)
    assert mixed[0].outputs.embedding == pytest.approx(adapted[0].outputs.embedding, abs=1e-6)
    assert mixed[-1].outputs.embedding == pytest.approx(plain[-1].outputs.embedding, abs=1e-6)


def test_rerankers_by_two_tokens_of_a_model_of_text(tmp_path):
    """Qwen3-Reranker's way: how much likelier "yes" is than "no" as the next token, which the model of text says itself."""
    folder = str(ROOT / "models/penstock-stories-1m-bf16")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}Answer:"
    pairs = [("Who has a dog?", "Tom has a dog."), ("Who is sad?", "The sun is big.")]
    with penstock.LLM(folder) as llm:
        tokenizer = llm.get_tokenizer()
        no, yes = "\u2581no", "\u2581he"
        ids = [tokenizer.convert_tokens_to_ids(piece) for piece in (no, yes)]
        assert all(tokenizer.convert_ids_to_tokens(token) == piece for token, piece in zip(ids, (no, yes)))
        expected = []
        for query, document in pairs:
            prompt = f"query: {query}\ndocument: {document}\nAnswer:"
            row = llm.generate(prompt, penstock.SamplingParams(max_tokens=1, logprobs=-1), use_tqdm=False)[0].outputs[0].logprobs[0]
            expected.append(1 / (1 + numpy.exp(row[ids[0]].logprob - row[ids[1]].logprob)))
    overrides = {"architectures": ["LlamaForSequenceClassification"], "classifier_from_token": [no, yes],
                 "is_original_qwen3_reranker": True}
    with penstock.LLM(folder, runner="pooling", hf_overrides=overrides) as llm:
        outputs = llm.score([query for query, _ in pairs], [document for _, document in pairs], chat_template=template, use_tqdm=False)
        assert [output.outputs.score for output in outputs] == pytest.approx(expected, abs=2e-3)  # BF16
    overrides["classifier_from_token"] = ["nonsense-token", yes]
    with penstock.LLM(folder, runner="pooling", hf_overrides=overrides) as llm, pytest.raises(ValueError, match="is no token"):
        llm.score("a", "b")
