#!/usr/bin/env python3
"""Token ids by llama.cpp, as a reference for the tokenizer's tests.

    tokenizer_reference.py --tokenizer BIN --model MODEL --wikitext FILE
                           --cases FILE.inp --out FOLDER [--spm VOCAB.gguf]

BIN is llama.cpp's llama-tokenize, MODEL a GGUF of SmolLM2, --wikitext the raw
test text of WikiText-2, --cases one of llama.cpp's ggml-vocab-*.gguf.inp (they
all hold the same texts). No BOS is put first, and the text of a special token,
as <|im_start|>, is text. Writes into FOLDER (see ../fixtures/README.md):

    wikitext2_ids.txt                  the whole of the WikiText-2 test text
    wiki_small.txt                     its start
    smollm_cases.inp, smollm_cases.out llama.cpp's cases
    smollm_more.inp, smollm_more.out   the cases below
    wikitext2_ids_llama_spm.txt, llama_spm_more.out   the same with --spm, llama.cpp's ggml-vocab-llama-spm.gguf

Made with llama.cpp of llama-cpp-python 0.3.36 and xxhash 4.1.0.
"""

import argparse
import os
import struct
import subprocess

SEPARATOR = b"\n__ggml_vocab_test__\n"
SMALL_TEXT = 3450

MORE = [
    # Contractions, also where they look like one only.
    "I'm sure you're right, he's late, she'd go, they'll see, we've won, can't, 'tis",
    "DON'T I'LL WE'VE it'S 's ''s 'll've o'clock rock'n'roll '",
    "don\u2019t I\u2019ve \u2018tis \u201cquoted\u201d",
    " 's  's\n's\t't 're",
    # Digits.
    "1234567 12 3 45678901234567890 0.5 1,000,000 -17e+3 0x1F 3rd 2nd4",
    "a  12   3    4 \t5\n6 \n 7",
    "abc123def456 HTTPServer2Go x86_64 utf8mb4 1st",
    # White space.
    "line one\r\nline two\r\n\r\nline three\r",
    "\tindented\t\ttwice \t mixed\t ",
    "a b  c   d    e     f      g       h        i",
    "   leading and trailing   ",
    "ends with newlines\n\n\n",
    "\n \n\t\n  x\n  \n\n   y \n",
    "        ",
    "x" + " " * 200 + "y" + "\n" * 30,
    "x \n y  \n  z   \n\n",
    "a\vb\fc\x1cd\x1de\x1ef\x1fg\x85h",
    "nbsp\u00a0x em\u2003x ideographic\u3000x zero\u200bwidth line\u2028x para\u2029x "
    "ogham\u1680x narrow\u202fx math\u205fx",
    "a\u00a0\u00a0b\u3000\u3000 c \u2003 d\u00a0\n\u00a0",
    # Emoji: joiners, skin tones, flags, keycaps, variation selectors.
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd "
    "\U0001f1eb\U0001f1f7 1\ufe0f\u20e3 \u2764\ufe0f\u200d\U0001f525 \U0001f9d1\u200d\U0001f4bb!",
    # Marks.
    "e\u0301 a\u0308o\u0308 n\u0303o cafe\u0301s Z\u0351\u036b\u0343a\u0315l\u0341g\u0310o\u0321",
    "a\u0300b \u0300 \u0300a 1\u0300 .\u0300. \u0300\u0301 \u20dd x\u20dd 5\u20e3",
    # Scripts.
    "\u6211\u559c\u6b22\u5403\u82f9\u679c\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8"
    "\u3001\u30ab\u30bf\u30ab\u30ca\uff01\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 \U00020000\U0002a6d6",
    "\u0627\u0644\u0633\u0651\u064e\u0644\u064e\u0627\u0645\u064f "
    "\u0639\u064e\u0644\u064e\u064a\u0652\u0643\u064f\u0645\u0652\u060c \u0661\u0662\u0663\u0664\u061f",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969 "
    "\u0915\u094d\u0937 \u0924\u094d\u0930 \u091c\u094d\u091e \u0964",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 "
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd "
    "\u0f56\u0f7c\u0f51\u0f0b \u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u0531\u0532",
    "Stra\u00dfe \u0130stanbul \u0131 \ufb01nal \u01c5 \u02b0 \u00aa\u00ba \u00c6\u00d8\u00c5 "
    "\u0141\u00f3d\u017a \u041c\u043e\u0441\u043a\u0432\u0430 \u0391\u03b8\u03ae\u03bd\u03b1",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",
    "abc \u202eevil\u202c \u200fmark\u200e \u05d0b\u05d2 \u061c",
    # Numbers that are no ASCII digits, superscripts, fractions.
    "\u2167 \u2460\u2461\u2462 \u0e51\u0e52\u0e53 \u09e7\u09e8 \uff11\uff12\uff13 "
    "\u4e00\u4e8c\u4e09 \U0001d7d8\U0001d7d9 \u00bd\u00be \u3007 \u2182x\u2183",
    "x\u00b2 + y\u00b3 = z\u207f, H\u2082O, 10\u207b\u2079 m\u00b2, 5 \u00b5m, 20\u00b0C",
    # Punctuation and symbols.
    "!!!??? ... -- --- ===>>> /* */ //// ###$$$%%% ((([[[{{{}}}]]]))) \\\\ \\n",
    " ,. ;: \"quoted\" 'single' `tick` ~tilde~ ^caret^ |pipe| a_b __init__ @user #tag $5 5$ 100%",
    "\u20ac5 \u00a33 \u221e \u2260 \u2211x \u2192 \u2500\u2502\u250c \u2026 \u2014 \u2013 \u00a7 "
    "\u00b6 \u2022 \u00a9 \u2122 \u00bfqu\u00e9? \u00a1s\u00ed! \u300c\u300d",
    " @-@ @,@ = = Heading = = \n <unk> 's n 't ",
    "=" * 80 + "-" * 81 + "*" * 7,
    "https://example.org/a/b?c=1&d=%20e#f user.name+tag@example.com C:\\dir\\file.txt",
    "for (int i=0;i<10;++i)\n{\n\ta[i] = b[i]*2.5f; // x\n}\n",
    "a" * 100 + " " + "ab" * 64 + " " + "Na" * 20 + "\n",
    # The text of special tokens: text here, since nothing is parsed.
    "<|im_start|>user\nHello<|im_end|>\n<|endoftext|><repo_name><file_sep>",
    "<|im_start|<|im_end|>> <|IM_START|> < |im_end| > <filename><jupyter_code>",
    # Rare but valid UTF-8: byte order mark, noncharacters, private use, the
    # ends of ranges, unassigned.
    "\ufeffbom \ufffd \ufffe\uffff \ue000 \U000f0000 \U0010ffff \u0080\u07ff\u0800\ud7ff \ufdd0 "
    "\u0378 \U000e0041",
    "soft\u00adhyphen zw\u200dj zw\u200cnj vs\ufe0f",
    "\x01\x02\x03\x05\x07\x08\x0e\x0f\x10\x1a\x1b[0m\x7f",
    # Bytes that SmolLM2's vocabulary has no token for: they vanish.
    "a\x04b\x06 \x13c\x14\x16d\x1d |\U00040000|\U00080000|",
    # One character.
    "1", "'", "\u00e9", "\u0301", "\r", "\U0001f600",
]


def tokenize(binary, model, text, special=False):
    """The ids of a text (bytes), without BOS, as llama.cpp makes them."""
    if not text:
        return []
    command = [binary, "-m", model, "--stdin", "--ids", "--no-bos", "--no-escape"]
    if not special:
        command.append("--no-parse-special")
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode(errors="replace"))
    line = done.stdout.decode().strip().splitlines()[-1]
    return [int(word) for word in line.strip("[]").split(",") if word.strip()]


def read_cases(path):
    """The texts of an .inp file: each has the separator after it."""
    with open(path, "rb") as f:
        texts = f.read().split(SEPARATOR)
    return texts if texts[-1] else texts[:-1]


def write_cases(args, name, texts):
    with open(os.path.join(args.out, name + ".inp"), "wb") as f:
        for text in texts:
            assert SEPARATOR not in text
            f.write(text + SEPARATOR)
    with open(os.path.join(args.out, name + ".out"), "w", encoding="ascii") as f:
        for text in texts:
            ids = tokenize(args.tokenizer, args.model, text)
            f.write("".join(f" {i}" for i in ids) + "\n")
    print(f"{name}: {len(texts)} cases")


def write_digest(args, model, text, name):
    import xxhash

    ids = tokenize(args.tokenizer, model, text)
    digest = xxhash.xxh64_hexdigest(struct.pack(f"<{len(ids)}I", *ids), seed=0)
    with open(os.path.join(args.out, name + ".txt"), "w", encoding="ascii") as f:
        f.write(f"{len(ids)}\n{digest}\n{' '.join(map(str, ids[:256]))}\n")
    print(f"{name}: {len(ids)} ids, XXH64 {digest}")


def write_spm(args):
    with open(args.wikitext, "rb") as f:
        write_digest(args, args.spm, f.read(), "wikitext2_ids_llama_spm")
    with open(os.path.join(args.out, "llama_spm_more.out"), "w", encoding="ascii") as f:
        for text in MORE:
            f.write("".join(f" {i}" for i in tokenize(args.tokenizer, args.spm, text.encode())) + "\n")


def write_wikitext(args):
    with open(args.wikitext, "rb") as f:
        text = f.read()
    write_digest(args, args.model, text, "wikitext2_ids")
    with open(os.path.join(args.out, "wiki_small.txt"), "wb") as f:
        f.write(text[:text.rfind(b"\n", 0, SMALL_TEXT) + 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("tokenizer", "model", "wikitext", "cases", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--spm")
    args = parser.parse_args()
    write_cases(args, "smollm_cases", read_cases(args.cases))
    write_cases(args, "smollm_more", [text.encode() for text in MORE])
    write_wikitext(args)
    if args.spm:
        write_spm(args)


if __name__ == "__main__":
    main()
