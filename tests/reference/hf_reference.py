#!/usr/bin/env python3
"""Tokenizers in Hugging Face's format and what they make of texts, as a reference for the tokenizer's tests.

    hf_reference.py --fixtures FOLDER [--wikitext FILE --bert VOCAB.gguf] [--llama-tokenize BIN]

Writes into the folder (see ../fixtures/README.md):

    tok_NAME.json                 a small tokenizer trained on wiki_small.txt; one that is there is kept, as training
                                  comes out a little different each time
    tok_NAME.out                  its ids of the texts in tok_texts.inp
    tok_texts.inp                 those of smollm_cases.inp and smollm_more.inp, and those below
    tok_steps.json                texts, and what single normalizers and pre-tokenizers make of them
    wikitext2_ids_bert.txt        number, hash and start of the ids of --wikitext, with --bert's vocabulary (llama.cpp's
                                  ggml-vocab-bert-bge.gguf) and BERT's own rules
    bert_more.out                 its ids of smollm_more.inp
    tok_ugm.gguf, tok_ugm.out     a unigram vocabulary with a table of replacements, and what llama.cpp's llama-tokenize
                                  makes of tok_texts.inp with it

Made with tokenizers 0.23.3, gguf 0.19.0 and xxhash 4.1.0.
"""

import argparse
import json
import os
import struct
import subprocess

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEPARATOR = b"\n__ggml_vocab_test__\n"

ADDED = [  # for added tokens and their flags
    "<s>Hello</s> world<mask> x",
    "a<mask>b <mask> c  <mask>  d",
    " <s> <s>",
    "word wordy sword word, a word",
    "WORD Word <MASK>",
    "<sep> <sep><sep>x<sep> \n y",
    "caf\u00e9 cafe\u0301 CAF\u00c9",
    "<s",
    "<<s>>",
    "<mask><mask>",
]


def read_cases(path):
    with open(path, "rb") as f:
        texts = f.read().split(SEPARATOR)
    return [text.decode() for text in (texts if texts[-1] else texts[:-1])]


def add_tokens(t):
    t.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False),
                          AddedToken("<mask>", lstrip=True, normalized=False),
                          AddedToken("<sep>", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("word", single_word=True, normalized=True), AddedToken("caf\u00e9", normalized=True)])


def frame(t):
    s, e = t.token_to_id("<s>"), t.token_to_id("</s>")
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1",
                                                     special_tokens=[("<s>", s), ("</s>", e)])


def byte_level(text):
    """As GPT-2's, with Llama 3's pattern; ignores merges."""
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=700, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    add_tokens(t)
    frame(t)
    return t.to_str()


def byte_fallback(text):
    """As Llama 2's: characters, the rest in bytes, spaces by the normalizer."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    names = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    words = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.pre_tokenizer = words  # for training only
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=900, special_tokens=names, show_progress=False,
                                                      limit_alphabet=60))
    t.pre_tokenizer = pre_tokenizers.Sequence([])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    add_tokens(t)
    frame(t)
    d = json.loads(t.to_str())
    d["pre_tokenizer"] = None
    d["added_tokens"] = [a for a in d["added_tokens"] if not a["content"].startswith("<0x")]
    return json.dumps(d, ensure_ascii=False)


def unigram(text):
    """As T5's and XLM-R's."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator([text], trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>"], unk_token="<unk>",
                                                          show_progress=False))
    add_tokens(t)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t.to_str()


def wordpiece(text):
    """As BERT's, cased, with a short limit on words."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]"],
                                                            show_progress=False))
    add_tokens(t)
    t.post_processor = processors.BertProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t.to_str()


def suffixed(text):
    """As the first BPE models': words end with </w>, digits and punctuation stand alone; an old file without types."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True),
                                               pre_tokenizers.Punctuation()])
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False,
                                                      end_of_word_suffix="</w>"))
    add_tokens(t)
    d = json.loads(t.to_str())
    del d["model"]["type"]
    d["model"]["merges"] = [" ".join(pair) for pair in d["model"]["merges"]]
    return json.dumps(d, ensure_ascii=False)


def write_tokenizers(folder):
    with open(os.path.join(folder, "wiki_small.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    texts = [t for name in ("smollm_cases.inp", "smollm_more.inp") for t in read_cases(os.path.join(folder, name))]
    texts += ADDED
    with open(os.path.join(folder, "tok_texts.inp"), "wb") as f:
        for t in texts:
            f.write(t.encode() + SEPARATOR)
    for make in (byte_level, byte_fallback, unigram, wordpiece, suffixed):
        path = os.path.join(folder, f"tok_{make.__name__}.json")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as f:
                f.write(json.dumps(json.loads(make(text)), ensure_ascii=False, separators=(",", ":")) + "\n")
        with open(path, encoding="utf-8") as f:
            document = f.read()
        tokenizer = Tokenizer.from_str(document)
        with open(os.path.join(folder, f"tok_{make.__name__}.out"), "w", encoding="ascii") as f:
            for t in texts:
                f.write("".join(f" {i}" for i in tokenizer.encode(t).ids) + "\n")
        print(f"tok_{make.__name__}: {tokenizer.get_vocab_size()} tokens, {len(document)} bytes")


STEP_TEXTS = [
    "Hello, y'all! How are  you \U0001f601 ?", " a  b\t\n c ", "x1y22z333 \u00bd \u0661\u0662 \u2167", "",
    "\u00c5ngstr\u00f6m caf\u00e9 cafe\u0301 \ufb01 \u2460 \u3314 \uff76\uff9e \u1e9b\u0323",
    "\u6211\u559c\u6b22 apple\u3002\ud55c\uad6d\uc5b4 \u0928\u092e\u0938\u094d\u0924\u0947", "a\u0000b\u0007c\u00add\u200be\u00a0f\u3000g\ufffdh",
    "one\nTwo\r\nthree\n\n", "aaa abab ba", "\u0130stanbul \u03a3\u03a3 \u01c5 \u1e9e \u0410\u0411", "\u2581a \u2581", "__x-y_z__ (a.b) $5 50%",
    "It's 'S we'Ve", " ", "\u0301a \u0903b \u20ddc",
]


def step_objects():
    p, n = pre_tokenizers, normalizers
    behaviours = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    norm = [n.NFC(), n.NFD(), n.NFKC(), n.NFKD(), n.Lowercase(), n.StripAccents(), n.Nmt(), n.Prepend("\u2581"),
            n.Strip(True, False), n.Strip(False, True), n.Replace(" ", "\u2581"), n.Replace("", "-"),
            n.Replace(Regex(r"\s+"), " "), n.Replace(Regex("a*"), "X"), n.Replace(Regex(r"^.|\w$"), "_"),
            n.Replace(Regex(r"\b"), "|"), n.Replace(Regex(r"(?i)[A-C[xyz]]{,2}b"), "#"),
            n.Replace(Regex(r"[[:punct:]\d]"), "?"), n.Replace(Regex(r"(?m:a.)\u0062?"), "<>"),
            n.Replace(Regex(r"[^\S\n]"), "."), n.ByteLevel(), n.BertNormalizer(),
            n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
            n.BertNormalizer(lowercase=False), n.Precompiled(charsmap()), n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()])]
    pre = [p.ByteLevel(add_prefix_space=True), p.ByteLevel(add_prefix_space=False, use_regex=False), p.Digits(True),
           p.Digits(False), p.Whitespace(), p.WhitespaceSplit(), p.BertPreTokenizer(), p.CharDelimiterSplit("a"),
           p.Split(Regex(r"[\p{Lo}\p{Lm}&&[^\p{Han}]]+|\p{Han}+|[a-m&&[^aeiou]&&b-h]+"), "isolated"),
           p.Split(Regex(r"b*"), "isolated"), p.Split("", "isolated"), p.Split(Regex(r"(?=[A-Z])"), "isolated"),
           p.Sequence([p.WhitespaceSplit(), p.Digits(True)])]
    pre += [p.Metaspace("\u2581", scheme, split) for scheme in ("always", "first", "never") for split in (True, False)]
    pre += [p.Punctuation(b) for b in behaviours]
    pre += [p.Split(Regex(r"\w|\s"), b, invert) for b in behaviours for invert in (False, True)]
    pre += [p.Split("a", b) for b in behaviours]
    return norm, pre


def write_steps(folder):
    norm, pre = step_objects()
    clean = [t for t in STEP_TEXTS if "\u0000" not in t]  # U+0000 is refused in files
    bare = Tokenizer(models.BPE())
    out = []
    for step in norm:
        bare.normalizer = step
        out.append({"normalizer": json.loads(bare.to_str())["normalizer"],
                    "cases": [[t, step.normalize_str(t)] for t in clean]})
    for step in pre:
        bare.pre_tokenizer = step
        out.append({"pre_tokenizer": json.loads(bare.to_str())["pre_tokenizer"],
                    "cases": [[t, [piece for piece, _ in step.pre_tokenize_str(t)]] for t in clean]})
    with open(os.path.join(folder, "tok_steps.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(o, ensure_ascii=True, separators=(",", ":")) for o in out) + "\n]\n")
    print(f"tok_steps: {len(norm)} normalizers, {len(pre)} pre-tokenizers")


CHARSMAP = {"\u00c5": "A", "\u00c5ng": "ang", "\ufb01": "fi", "\u2460": "1", "\t": " ", "\n": " ", "\r": " ", "\u3000": " ",
            "e\u0301": "\u00e9", "\u212b": "\u00c5", "\u00ad": "", "\u2028": " ", "\u00bd": " 1/2", "W": "w"}


def charsmap():
    """CHARSMAP as SentencePiece keeps it: a double array (XOR, darts-clone's bits) and the replacements."""
    texts, value = b"", {}
    for key, text in CHARSMAP.items():
        value[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    units, used = {0: 0}, {0}

    def place(at, prefix):
        labels = sorted({k[len(prefix)] for k in value if len(k) > len(prefix) and k.startswith(prefix)})
        if prefix in value:
            labels.insert(0, 0)  # the value lies where a zero byte would lead
        base = next(b for b in range(1, 1 << 20) if all(at ^ b ^ c not in used for c in labels) and b < 1 << 21)
        used.update(at ^ base ^ c for c in labels)
        units[at] = units.get(at, 0) | base << 10 | (1 << 8 if prefix in value else 0)
        for c in labels:
            child = at ^ base ^ c
            if c == 0 and prefix in value:
                units[child] = value[prefix] | 1 << 31
            else:
                units[child] = c
                place(child, prefix + bytes([c]))

    place(0, b"")
    size = (max(units) | 255) + 1  # readers look at any place of a block
    array = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(array)) + array + texts


def write_ugm(args):
    """The vocabulary of tok_unigram.json, its token "word" user-defined, in the dress of a model that llama.cpp loads."""
    import gguf

    with open(os.path.join(args.fixtures, "tok_unigram.json"), encoding="utf-8") as f:
        d = json.load(f)
    pieces = d["model"]["vocab"] + [["</s>", 0.0], ["word", 0.0], ["never", -20.0]]
    kinds = {"<unk>": 2, "</s>": 3, "word": 4, "never": 5}
    path = os.path.join(args.fixtures, "tok_ugm.gguf")
    w = gguf.GGUFWriter(path, "t5")
    w.add_context_length(512)
    w.add_embedding_length(32)
    w.add_feed_forward_length(32)
    w.add_block_count(1)
    w.add_head_count(1)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_relative_attn_buckets_count(32)
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([p for p, _ in pieces])
    w.add_token_scores([s for _, s in pieces])
    w.add_token_types([kinds.get(p, 1) for p, _ in pieces])
    w.add_precompiled_charsmap(charsmap())
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces(True)
    w.add_unk_token_id(0)
    w.add_eos_token_id(len(d["model"]["vocab"]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    with open(os.path.join(args.fixtures, "tok_ugm.out"), "w", encoding="ascii") as f:
        for text in read_cases(os.path.join(args.fixtures, "tok_texts.inp")):
            command = [args.llama_tokenize, "-m", path, "--stdin", "--ids", "--no-escape", "--no-parse-special"]
            done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
            ids = [int(i) for i in done.stdout.decode().strip().splitlines()[-1].strip("[]").split(",") if i.strip()]
            f.write("".join(f" {i}" for i in ids) + "\n")
    print(f"tok_ugm: {len(pieces)} tokens")


def write_bert(args):
    import gguf
    import xxhash

    reader = gguf.GGUFReader(args.bert)
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    # GGUF's spelling back into BERT's
    vocab = {t[1:] if t.startswith("\u2581") else t if t.startswith("[") and t.endswith("]") else "##" + t: i
             for i, t in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    t = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    with open(args.wikitext, "rb") as f:
        ids = t.encode(f.read().decode()).ids
    digest = xxhash.xxh64_hexdigest(struct.pack(f"<{len(ids)}I", *ids), seed=0)
    with open(os.path.join(args.fixtures, "wikitext2_ids_bert.txt"), "w", encoding="ascii") as f:
        f.write(f"{len(ids)}\n{digest}\n{' '.join(map(str, ids[:256]))}\n")
    with open(os.path.join(args.fixtures, "bert_more.out"), "w", encoding="ascii") as f:
        for text in read_cases(os.path.join(args.fixtures, "smollm_more.inp")):
            f.write("".join(f" {i}" for i in t.encode(text).ids) + "\n")
    print(f"wikitext2_ids_bert: {len(ids)} ids, XXH64 {digest}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--fixtures", required=True)
    parser.add_argument("--wikitext")
    parser.add_argument("--bert")
    parser.add_argument("--llama-tokenize")
    args = parser.parse_args()
    write_tokenizers(args.fixtures)
    write_steps(args.fixtures)
    if args.wikitext and args.bert:
        write_bert(args)
    if args.llama_tokenize:
        write_ugm(args)


if __name__ == "__main__":
    main()
