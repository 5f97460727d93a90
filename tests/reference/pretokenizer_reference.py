#!/usr/bin/env python3
"""What every pre-tokenizer that llama.cpp's file format names makes of texts.

    pretokenizer_reference.py --source llama-vocab.cpp --tokenizer LLAMA_TOKENIZE
                              --wikitext FILE --fixtures FOLDER

Writes pretokenizer_texts.inp and pretokenizers.txt (see ../fixtures/README.md)
into FOLDER, with the ids that llama.cpp gives, or Hugging Face's tokenizers
where llama.cpp has not the pattern of the models' own tokenizer.json but one of
its own, for an engine without properties, that cuts elsewhere (ORIGINAL). Says
of how many texts the two differ there.

The vocabulary is one in which nearly every cut shows: a token for each byte,
for three times the same byte, and for each pair of bytes; threes are made
first, then pairs in a mixed order. Three words are tokens that no merge makes.
For pre-tokenizers
that cut text and not the letters for its bytes (RAW), the same with printable
ASCII characters, U+2581 for a space, and bytes as "<0x41>".

Made with llama.cpp of llama-cpp-python 0.3.36, gguf 0.19.0, tokenizers 0.23.3
and xxhash 4.1.0.
"""

import argparse
import json
import os
import random
import re
import struct
import subprocess
import tempfile

import gguf
import tokenizers
import xxhash

from tokenizer_reference import SEPARATOR, read_cases

BETWEEN = "<|between|>"  # a control token between texts, so that one call does for all
RAW = ["gemma4", "granite-embed-multi-311m", "sarvam-moe"]
REFUSED = ["whitespace"]  # goes with a tokenizer model of its own, which drops white space
IGNORE_MERGES = ["granite-embed-multi-97m", "tekken", "youtu"]  # among ORIGINAL

# ---- the patterns of the models' own files ---------------------------------

SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(upper, lower, short, digits, signs):
    before = r"[^\r\n\p{L}\p{N}]?"
    return (f"{before}[{upper}]*[{lower}]+{short}|{before}[{upper}]+[{lower}]*{short}|{digits}"
            rf"| ?[^\s\p{{L}}\p{{N}}]+{signs}|\s*[\r\n]+|\s+(?!\S)|\s+")


GPT_4O = cased(UPPER, LOWER, SHORT, r"\p{N}{1,3}", r"[\r\n/]*")
NOT_HAN = r"&&[^\p{Han}]"
TINY_AYA = r"\d{1,3}(?=(?:\d{3})*\b)"


def literals(source, case, n):
    """The first n patterns below a case of llama.cpp's list."""
    below = source[source.index(f"LLAMA_VOCAB_PRE_TYPE_{case}:"):]
    found = re.findall(r'^ +"((?:[^"\\]|\\.)*)",$', below, re.M)[:n]
    escapes = {"n": "\n", "r": "\r", "t": "\t"}
    return [re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), text) for text in found]


def original(source):
    llm, coder = literals(source, "DEEPSEEK_LLM", 6), literals(source, "DEEPSEEK_CODER", 5)
    afmoe = literals(source, "AFMOE", 3)
    patterns = {name: [GPT_4O] for name in
                ["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m"]}
    patterns["tekken"] = [cased(UPPER, LOWER, "", r"\p{N}", r"[\r\n/]*")]
    patterns["tiny_aya"] = patterns["cohere2moe"] = [TINY_AYA, GPT_4O]
    patterns["youtu"] = literals(source, "YOUTU", 1) + [cased(UPPER, LOWER, SHORT, r"\p{N}", r"[\r\n/]*")]
    patterns["kimi-k2"] = [r"[\p{Han}]+|" + cased(UPPER + NOT_HAN, LOWER + NOT_HAN, SHORT, r"\p{N}{1,3}",
                                                 r"[\r\n]*")]
    patterns["superbpe"] = [r"\p{N}+", r"(?=(\d{3})+(?!\d))"]
    # As they are, for \s and for what stands before digits, which there are not cut as these say.
    patterns["deepseek-llm"], patterns["deepseek-coder"] = llm, coder
    patterns["afmoe"] = [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"] + afmoe[1:]
    return patterns


# ---- vocabularies ----------------------------------------------------------


def letters():
    """GPT-2's letter for each byte."""
    itself = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in itself]
    table = {b: chr(b) for b in itself} | {b: chr(0x100 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


def mixed(symbols):
    """All pairs, in a mixed order."""
    n = len(symbols) ** 2
    step = 40503
    return [(symbols[i // len(symbols)], symbols[i % len(symbols)]) for i in (k * step % n for k in range(n))]


WHOLE = ["\u0120the", "helloWorld", "Hello"]  # no merge makes them: where merges are ignored they are found


def vocabulary(raw):
    symbols = ["\u2581" if c == " " else c for c in map(chr, range(0x20, 0x7F))] if raw else letters()
    repeated = symbols + ["\n"] if raw else symbols
    merges = [(s + s, s) for s in repeated] + mixed(symbols) + [("\n", "\n")] * raw
    singles = [f"<0x{b:02X}>" for b in range(256)] + repeated if raw else symbols
    return singles + [a + b for a, b in merges] + ([] if raw else WHOLE), merges


def write_gguf(path, name):
    tokens, merges = vocabulary(False)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens + [BETWEEN])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL])
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_block_count,
                writer.add_head_count, writer.add_feed_forward_length):
        add(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return len(tokens)


# ---- ids -------------------------------------------------------------------


def by_llama_cpp(args, name, texts):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.gguf")
        between = write_gguf(path, name)
        command = [args.tokenizer, "-m", path, "--stdin", "--ids", "--no-bos", "--no-escape"]
        done = subprocess.run(command, input=BETWEEN.encode().join(texts), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: " + done.stderr.decode(errors="replace"))
    found = [[]]
    for word in done.stdout.decode().strip().splitlines()[-1].strip("[]").split(","):
        if int(word) == between:
            found.append([])
        else:
            found[-1].append(int(word))
    assert len(found) == len(texts)
    return found


def by_tokenizers(name, patterns, texts):
    raw = name in RAW
    tokens, merges = vocabulary(raw)
    split = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [list(m) for m in merges],
             "ignore_merges": name in IGNORE_MERGES, "byte_fallback": raw}
    t = tokenizers.Tokenizer.from_str(json.dumps({
        "version": "1.0", "added_tokens": [], "post_processor": None, "decoder": None, "model": model,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"} if raw else None,
        "pre_tokenizer": None if raw else {"type": "Sequence", "pretokenizers": split + [level]}}))
    return [t.encode(text.decode(), add_special_tokens=False).ids for text in texts]


# ---- texts -----------------------------------------------------------------

PARTS = [" ", "  ", "   ", "\n", "\r\n", "\r", "\t", "'", "\u2019", "s", "S", "T", "re", "RE", "ll", "LL", "\u017f",
         "a", "b", "Ab", "ABC", "abC", "\u00e9\u00e0", "\u00c9", "1", "12", "345", "6789", "1234567", "\u0663", "\u00bd",
         "\u00b2", "\u2167", "\u4e2d", "\u6587\u5b57", "\u306e", "\u30ab", "\ud55c\uad6d", "\u3131", "\u3105",
         "\u0e44\u0e17\u0e22", "\u0e2a\u0e27\u0e31", "\u0627", "\u0644\u064f", "\u0928", "\u092e\u0938\u094d\u0924\u0947",
         "\u1780", "\u1000", "\u0e81", "\u0301", "\u0308", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001f3fd", "!",
         "?!", "...", "-", "--", "_", "$", "+", "<=", "^", "~", "|", "`", "(", ")", "[", "]", "{", "}", "/", "\\", "#",
         "@", "&", "*", ":", ";", "%", ",", ".", "\u3002", "\uff0c", "\u2026", "\u201c", "\u201d", "\u2014", "\u3001",
         "\u00a0", "\u3000", "\u2003", "\u200b", "\u0085", "\u2028", "\v", "\f", "\x1c", "\u180e", "\ufeff", "\u02b0",
         "\u00aa", "\u01c5", "\u00df", "\u0130", "\u0131", "\u03a3", "\u03c2", "\u0416", "\u05d0", "\u05e9\u05c1",
         "\u10e5", "\u1c90", "\u13a0", "\uab70", "\u212a", "\u212b", "\U0001d400", "\U00010400", "\U00010428",
         "\U00020000", "\ue000", "\u0378", "\u20e3", "\u20ac", "\u00a9", "\u00b0", "\ufb01", "\uff21", "\uff11",
         "\uff01", "\uff5e", "\u061f", "\u060c", "\u0964", "\u06d4", "\u2e80", "\u3005", "\u3007", "\ua000", "\ufe30",
         "IMGIMGABZ", "<sentinel:12>", "it's", "DON'T", "'tis", "'sat", "'Many",
         "we'VE", "'llama", "'dog", "x'ly", "helloWorld", "HTTPServer", "a b c", "!\n\n", "?\n/"]
RUNS = [" ", "\n", "\t", "a", "A", "7", "'", "-", "\u4e2d", "\u00e9", "\u0301", "\U0001f600", "\u00a0", "\r\n"]


def make_texts():
    rng = random.Random(2581)
    texts = ["".join(rng.choice(PARTS) for _ in range(40)) for _ in range(100)]
    for run in RUNS:
        texts.append(" ".join(f"x{run * n}y 1{run * n} z\n{run * n}" for n in (2, 3, 5, 9, 17)) + run * 43)
    texts.append(" " * 1111 + "x" + " \t" * 333 + "\n y")
    return [text.encode() for text in texts]


def digest(ids):
    return xxhash.xxh32_hexdigest(struct.pack(f"<{len(ids)}I", *ids), seed=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("source", "tokenizer", "wikitext", "fixtures"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    with open(args.source, encoding="utf-8") as f:
        source = f.read()
    names = sorted(set(re.findall(r'tokenizer_pre == "([^"]+)"', source)))
    patterns = original(source)

    texts = make_texts()
    with open(os.path.join(args.fixtures, "pretokenizer_texts.inp"), "wb") as f:
        f.writelines(text + SEPARATOR for text in texts)
    texts = read_cases(os.path.join(args.fixtures, "tok_texts.inp")) + texts
    with open(args.wikitext, "rb") as f:
        texts.append(f.read())

    groups = {}
    for name in names:
        if name in REFUSED:
            groups.setdefault(("refused", ""), []).append(name)
            continue
        ids = None if name in RAW else by_llama_cpp(args, name, texts)
        by = "llama.cpp"
        if name in RAW or name in patterns:
            ours = by_tokenizers(name, patterns.get(name, []), texts)
            by = "tokenizers"
            if ids:
                print(f"{name}: llama.cpp has other ids for {sum(a != b for a, b in zip(ids, ours))} of {len(texts)} texts")
            ids = ours
        groups.setdefault((by + (" raw" if name in RAW else ""), " ".join(map(digest, ids))), []).append(name)
    with open(os.path.join(args.fixtures, "pretokenizers.txt"), "w", encoding="ascii") as f:
        for (by, digests), members in groups.items():
            f.write(f"{by}: {' '.join(members)}\n{digests}\n")
    print(f"{len(names)} names in {len(groups)} groups, {len(texts)} texts")


if __name__ == "__main__":
    main()
