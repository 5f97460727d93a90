#!/usr/bin/env python3
"""Writes tests/fixtures/topo/*.xml: machines that hwloc's synthetic strings cannot describe, in hwloc's XML format.

usage: tests/reference/topologies.py

Each machine is a list of packages, each a list of NUMA nodes (memory in GiB, cores of so many hardware threads), made up after
the machines that the comments name. The format is the one that `lstopo --of xml` of hwloc 2.9 writes.
"""
import pathlib

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "topo"
GIB = 1 << 30


def bits(numbers) -> str:
    """hwloc's form of a set: words of 32 bits, the highest first."""
    value = sum(1 << n for n in numbers)
    words = []
    while value or not words:
        words.append(f"0x{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


def sets(cpus, nodes, allowed=None) -> str:
    text = f'cpuset="{bits(cpus)}" complete_cpuset="{bits(cpus)}" nodeset="{bits(nodes)}" complete_nodeset="{bits(nodes)}"'
    if allowed:
        text += f' allowed_cpuset="{bits(allowed)}" allowed_nodeset="{bits(nodes)}"'
    return text


def machine(name: str, packages, allowed=None, kinds=(), distances=None):
    """packages: [[(GiB, [threads of each core]), ...]]; kinds: [(CPUs, {info})]; distances: rows of the nodes' table."""
    cpu = node = core = 0
    gp = iter(range(2, 10000))
    all_cpus = range(sum(sum(threads) for p in packages for _, threads in p))
    all_nodes = range(sum(len(p) for p in packages))
    body = []
    for number, package in enumerate(packages):
        begin, node0, groups = cpu, node, []
        for gib, threads in package:
            first, cores = cpu, []
            for n in threads:
                pus = range(cpu, cpu + n)
                inner = "".join(
                    f'<object type="PU" os_index="{p}" {sets([p], [node])} gp_index="{next(gp)}"/>' for p in pus
                )
                cores.append(
                    f'<object type="Core" os_index="{core}" {sets(pus, [node])} gp_index="{next(gp)}">{inner}</object>\n'
                )
                cpu, core = cpu + n, core + 1
            memory = (
                f'<object type="NUMANode" os_index="{node}" {sets(range(first, cpu), [node])} gp_index="{next(gp)}" '
                f'local_memory="{gib * GIB}"/>\n'
            )
            if len(package) == 1:
                groups.append(memory + "".join(cores))
            elif not threads:  # memory without CPUs of its own: beside that of the whole package
                groups.append(memory)
            else:
                groups.append(
                    f'<object type="Group" {sets(range(first, cpu), [node])} gp_index="{next(gp)}" kind="1001" subkind="0">\n'
                    f'{memory}{"".join(cores)}</object>\n'
                )
            node += 1
        groups.sort(key=lambda g: "Group" in g)  # memory first
        body.append(
            f'<object type="Package" os_index="{number}" {sets(range(begin, cpu), range(node0, node))} gp_index="{next(gp)}">\n'
            f'{"".join(groups)}</object>\n'
        )
    tail = ""
    if distances:
        n = len(distances)
        indexes = " ".join(str(i) for i in range(n)) + " "
        values = " ".join(str(v) for row in distances for v in row) + " "
        tail += (
            f'<distances2 type="NUMANode" nbobjs="{n}" kind="5" name="NUMALatency" indexing="os">\n'
            f'<indexes length="{len(indexes)}">{indexes}</indexes>\n<u64values length="{len(values)}">{values}</u64values>\n'
            "</distances2>\n"
        )
    for cpus, info in kinds:
        infos = "".join(f'<info name="{k}" value="{v}"/>' for k, v in info.items())
        tail += f'<cpukind cpuset="{bits(cpus)}">{infos}</cpukind>\n'
    (OUT / f"{name}.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
        f'<object type="Machine" os_index="0" {sets(all_cpus, all_nodes, allowed or all_cpus)} gp_index="1">\n'
        f'{"".join(body)}</object>\n{tail}</topology>\n'
    )


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    four = [1] * 4
    # Node 1 has no memory modules; node 2's memory is nearer to it than node 0's.
    far = [[10, 21, 31], [21, 10, 16], [31, 16, 10]]
    machine("no_memory", [[(16, four)], [(0, four)], [(16, four)]], distances=far)
    # An expander: memory without CPUs.
    machine("no_cores", [[(16, four)], [(16, four), (64, [])]])
    # A desktop with 4 cores of two hardware threads and 8 slow ones.
    machine(
        "hybrid",
        [[(32, [2] * 4 + [1] * 8)]],
        kinds=[(range(8, 16), {"CoreType": "IntelAtom"}), (range(8), {"CoreType": "IntelCore"})],
    )
    # Big and little cores as Linux tells them apart on ARM.
    machine(
        "capacity",
        [[(8, [1] * 8)]],
        kinds=[(range(4), {"LinuxCapacity": "446"}), (range(4, 8), {"LinuxCapacity": "1024"})],
    )
    # A container that may use half of socket 1 of two, with two hardware threads a core.
    machine("half_socket", [[(16, [2] * 4)], [(16, [2] * 4)]], allowed=range(8, 12))
    # Nodes of very different sizes.
    machine("uneven", [[(16, [1] * 6)], [(8, [1] * 2)]])


if __name__ == "__main__":
    main()
