"""An include of a higher layer does not compile, one of a lower layer does: tried with the very flags that a file of
each layer is built with.

usage: includes_test.py ROOT BUILD
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT, BUILD = map(pathlib.Path, sys.argv[1:3])
LAYERS = {  # folder, and what it may see
    "base": ("runtime/base", "base"),
    "quant": ("quant/format", "base quant"),
    "kernels": ("kernels", "base quant kernels"),
    "comm": ("comm", "base quant kernels comm"),
    "graph": ("runtime/graph", "base quant kernels graph"),
    "partition": ("partition", "base quant kernels comm graph partition"),
    "engine": ("runtime/engine", "base quant kernels comm graph partition engine"),
    "launch": ("launch", "base sheaf.h"),
}


def compiles(flags: list, header: str, folder: str) -> bool:
    source = pathlib.Path(folder) / "try.c"
    source.write_text(f'#include "{header}"\n')
    return subprocess.run([*flags, "-fsyntax-only", source], capture_output=True).returncode == 0


def flags_of(entry: dict) -> list:
    words = shlex.split(entry["command"])
    out = words.index("-o")
    return [w for w in words[:out] + words[out + 2 :] if w not in ("-c", "-MD", entry["file"])]


def main() -> int:
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    headers = {"sheaf.h": "sheaf.h"}
    for name, (folder, _) in LAYERS.items():
        # A header that includes mpi.h compiles in its own layer only.
        plain = [h for h in sorted((ROOT / folder).glob("*.h")) if "#include <mpi.h>" not in h.read_text()]
        for header in plain[:1]:
            headers[name] = f"{name}/{header.name}"
    failures, tried = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, (folder, visible) in LAYERS.items():
            own = [c for c in commands if os.path.dirname(c["file"]) == str(ROOT / folder)]
            if not own:
                continue
            for layer, header in headers.items():
                if layer == name or layer == "launch" and name != "launch":
                    continue
                tried += 1
                expected = layer in visible.split()
                if compiles(flags_of(own[0]), header, temporary) != expected:
                    failures.append(f"{folder}: {header} {'does not compile' if expected else 'compiles'}")
    print("\n".join(failures) or f"{tried} includes tried")
    return 1 if failures or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
