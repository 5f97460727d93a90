"""scripts/check-layers passes on the tree, and bites: each planted violation is found, and its counterpart is not.

usage: check_layers_test.py ROOT
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ["runtime", "quant", "kernels", "comm", "partition", "launch"]

PLANTED = [  # file, contents, what the complaint must say
    ("kernels/planted.c", "#include <mpi.h>\n", "includes mpi.h"),
    ("runtime/engine/planted.c", "#include <hwloc.h>\n", "includes hwloc.h"),
    ("comm/planted.h", '#  include "numaif.h"\n', "includes numaif.h"),
    ("comm/planted.c", "#include <immintrin.h>\n", "includes immintrin.h"),
    ("runtime/base/planted.c", "#include <cpuid.h>\n", "includes cpuid.h"),
    ("runtime/engine/planted.c", "#include <oneapi/dnnl/dnnl.h>\n", "includes oneapi/dnnl/dnnl.h"),
    ("launch/planted.c", "#include <pcre2.h>\n", "includes pcre2.h"),
    ("partition/planted.c", "#include <cjson/cJSON.h>\n", "includes cjson/cJSON.h"),
    ("runtime/graph/planted.c", "#include <utf8proc.h>\n", "includes utf8proc.h"),
    ("quant/format/planted.c", "#include <zstd.h>\n", "includes zstd.h"),
    ("launch/planted.c", "#include <png.h>\n", "includes png.h"),
    ("kernels/planted.c", '#include "../comm/comm.h"\n', "path upwards"),
    ("launch/planted.c", '#include "engine/tokenizer.h"\n', "the program sees sheaf.h"),
    ("launch/planted.c", '#include "kernels/kernels.h"\n', "the program sees sheaf.h"),
    ("runtime/graph/arch_planted.c", "int x; /* per rank */\n", 'says "rank"'),
    ("runtime/graph/arch_planted.c", "int n_ranks;\n", 'says "ranks"'),
    ("partition/planted.c", "/* as Llama does */\n", 'says "Llama"'),
    ("partition/planted.h", "int phi3_special;\n", 'says "phi"'),
    ("tests/planted.c", "\n" * 601, "has 601 lines"),
]
INNOCENT = [
    ("comm/innocent.c", "#include <mpi.h>\n#include <zstd.h>\n"),
    ("runtime/base/innocent.c", "#include <hwloc.h>\n#include <numa.h>\n"),
    ("launch/innocent.c", '#include "sheaf.h"\n#include "base/err.h"\n#include "innocent.h"\n#include <cjson/cJSON.h>\n'),
    ("launch/innocent.h", "\n"),
    ("runtime/graph/arch_innocent.c", "/* frankly, ranking is something else */\n"),
    ("partition/innocent.c", "/* graphics */\n" * 600),
]


def check(root: pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts" / "check-layers", root], capture_output=True, text=True)


def main() -> int:
    tree = check(ROOT)
    failures = [f"the tree:\n{tree.stdout}"] if tree.returncode else []
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary)
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, copy / folder)
        (copy / "tests").mkdir()
        before = set(check(copy).stdout.splitlines())  # nothing, when the tree passes
        for name, contents, complaint in PLANTED:
            (copy / name).write_text(contents)
            run = check(copy)
            new = [line for line in run.stdout.splitlines() if line not in before]
            if run.returncode != 1 or len(new) != 1 or not new[0].startswith(f"{name}: ") or complaint not in new[0]:
                failures.append(f"planted {contents[:40]!r} in {name}: {new}")
            (copy / name).unlink()
        for name, contents in INNOCENT:
            (copy / name).write_text(contents)
        if new := set(check(copy).stdout.splitlines()) - before:
            failures.append(f"innocent files: {new}")
    print("\n".join(failures) or f"{len(PLANTED)} planted violations found")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
