#!/usr/bin/env python3
"""Writes reference.json: loads and least utilisations of demands on random networks, by networkx and scipy alone.

Arcs are [from, to, capacity, weight]; arcs 2 l and 2 l + 1 are a link, in both directions. Run it beside the file that it
writes; it needs networkx and scipy.
"""

import itertools
import json
import random

import networkx as nx
import numpy as np
from scipy.optimize import linprog


def graph(case, failed=()):
    g = nx.MultiDiGraph()
    g.add_nodes_from(range(case["nodes"]))
    for index, (tail, head, _, weight) in enumerate(case["arcs"]):
        if index not in failed:
            g.add_edge(tail, head, key=index, weight=weight)
    return g


def next_arcs(g, to):
    """By node, the arcs on shortest paths to a node."""
    distance = nx.single_source_dijkstra_path_length(g.reverse(copy=False), to)
    found = {}
    for node in distance:
        arcs = [(key, head) for _, head, key, data in g.out_edges(node, keys=True, data=True)
                if head in distance and node != to and data["weight"] + distance[head] == distance[node]]
        found[node] = sorted(arcs)
    return distance, found


def column(case, found, source, to, even):
    """What a unit puts on each arc."""
    share = np.zeros(len(case["arcs"]))
    todo = {source: 1.0}
    while todo:
        node, amount = todo.popitem()
        if node == to:
            continue
        arcs = found[node] if even else found[node][:1]
        for key, head in arcs:
            share[key] += amount / len(arcs)
            todo[head] = todo.get(head, 0.0) + amount / len(arcs)
    return share


def loads(case, failed=()):
    g = graph(case, failed)
    result = {"single": np.zeros(len(case["arcs"])), "ecmp": np.zeros(len(case["arcs"])), "disconnected": 0.0}
    for source, to, rate in case["demands"]:
        distance, found = next_arcs(g, to)
        if source not in distance:
            result["disconnected"] += rate
            continue
        result["single"] += rate * column(case, found, source, to, even=False)
        result["ecmp"] += rate * column(case, found, source, to, even=True)
    return result


def least(case, columns):
    """The least utilisation over given columns of each demand."""
    kinds = [(k, c) for k, some in enumerate(columns) for c in some]
    capacity = np.array([arc[2] for arc in case["arcs"]])
    above = np.array([case["demands"][k][2] * c / capacity for k, c in kinds]).T
    above = np.hstack([above, -np.ones((len(capacity), 1))])
    demands = [k for k, some in enumerate(columns) if some]
    equal = np.zeros((len(demands), len(kinds) + 1))
    for place, (k, _) in enumerate(kinds):
        equal[demands.index(k), place] = 1.0
    objective = np.zeros(len(kinds) + 1)
    objective[-1] = 1.0
    solved = linprog(objective, above, np.zeros(len(capacity)), equal, np.ones(len(demands)), method="highs")
    assert solved.success
    return solved.fun


def any_path(case):
    """The least utilisation over all paths: flows by source on arcs."""
    nodes, arcs = case["nodes"], case["arcs"]
    g = graph(case)
    sources = sorted({source for source, _, _ in case["demands"]})
    width = len(sources) * len(arcs) + 1
    equal, right = [], []
    for place, source in enumerate(sources):
        need = np.zeros(nodes)
        for a, b, rate in case["demands"]:
            if a == source and nx.has_path(g, a, b):
                need[a] += rate
                need[b] -= rate
        for node in range(nodes):
            row = np.zeros(width)
            for index, (tail, head, _, _) in enumerate(arcs):
                row[place * len(arcs) + index] += (tail == node) - (head == node)
            equal.append(row)
            right.append(need[node])
    above = np.zeros((len(arcs), width))
    for index, arc in enumerate(arcs):
        above[index, index:-1:len(arcs)] = 1.0 / arc[2]
        above[index, -1] = -1.0
    objective = np.zeros(width)
    objective[-1] = 1.0
    solved = linprog(objective, above, np.zeros(len(arcs)), np.array(equal), right, method="highs")
    assert solved.success
    return solved.fun


def two_segments(case):
    g = graph(case)
    trees = {to: next_arcs(g, to) for to in range(case["nodes"])}
    columns = []
    for source, to, _ in case["demands"]:
        some = []
        for via in range(case["nodes"]):
            if source in trees[via][0] and via in trees[to][0]:
                first = column(case, trees[via][1], source, via, even=True)
                some.append(first + column(case, trees[to][1], via, to, even=True))
        columns.append(some)
    return least(case, columns)


def given(case):
    """Up to three shortest simple paths of each pair of nodes, and the least utilisation over them."""
    simple = nx.DiGraph()
    by_ends = {}
    for index, (tail, head, _, weight) in enumerate(case["arcs"]):
        if (tail, head) not in by_ends or case["arcs"][by_ends[tail, head]][3] > weight:
            by_ends[tail, head] = index
            simple.add_edge(tail, head, weight=weight)
    simple.add_nodes_from(range(case["nodes"]))
    paths, columns = [], []
    for source, to, _ in case["demands"]:
        some = []
        if nx.has_path(simple, source, to):
            for path in itertools.islice(nx.shortest_simple_paths(simple, source, to, weight="weight"), 3):
                some.append([by_ends[ends] for ends in zip(path, path[1:])])
        paths.append(some)
        columns.append([np.bincount(path, minlength=len(case["arcs"])).astype(float) for path in some])
    return paths, least(case, columns)


def busiest(case, load):
    return max(value / arc[2] for value, arc in zip(load, case["arcs"]))


def make(seed):
    draw = random.Random(seed)
    nodes = draw.randint(4, 10)
    links = [(draw.randrange(node), node) for node in range(1, nodes - (seed % 4 == 3))]
    links += [tuple(draw.sample(range(nodes), 2)) for _ in range(draw.randint(2, nodes))]
    arcs = []
    for a, b in links:
        for ends in ((a, b), (b, a)):
            arcs.append([*ends, draw.choice([1.0, 2.5, 10.0]), draw.randint(1, 3)])
    pairs = draw.sample(list(itertools.permutations(range(nodes), 2)), draw.randint(3, nodes * 2))
    case = {"nodes": nodes, "arcs": arcs, "demands": [[a, b, round(draw.uniform(0.1, 3.0), 3)] for a, b in sorted(pairs)]}
    now = loads(case)
    paths, case["least_given"] = given(case)
    case["paths"] = paths
    case["least_any_path"] = any_path(case)
    case["least_two_segments"] = two_segments(case)
    case["single"], case["ecmp"] = [list(now[kind]) for kind in ("single", "ecmp")]
    case["disconnected"] = now["disconnected"]
    case["failures"] = []
    for link in range(len(arcs) // 2):
        after = loads(case, (2 * link, 2 * link + 1))
        case["failures"].append([busiest(case, after["single"]), busiest(case, after["ecmp"]), after["disconnected"]])
    return case


with open("reference.json", "w") as file:
    json.dump([make(seed) for seed in range(24)], file, separators=(",", ":"))
    file.write("\n")
