#!/usr/bin/env python3
"""Writes the files of this folder that networkx and igraph write, and expected.json: what each file has.

Values of files that networkx reads are those that it reads from them. Those of the others, which are written by hand, follow from
HAND below, by arithmetic. Needs `pip install networkx igraph`; made with networkx 3.6.1 and igraph 1.0.0.
"""

import json
import os

import igraph
import networkx as nx

os.chdir(os.path.dirname(os.path.abspath(__file__)))

CITIES = {
    "Bern": (46.95, 7.45), "Genf": (46.2, 6.15), "Chur": (46.85, 9.53), "Basel": (47.56, 7.59), "São": (-23.55, -46.63),
}  # fmt: skip
LINKS = [
    ("Bern", "Genf", 100.0, 0.7, 3), ("Bern", "Chur", 40.0, 1.2, 2.5), ("Bern", "Basel", 400.0, 0.5, 1),
    ("Basel", "Chur", 10.0, 0.9, 7), ("Genf", "São", 2.5, 48.0, 20),
]  # fmt: skip


def network(kind=nx.Graph, numbered=False):
    """The network: capacities in Gbit/s, delays in ms, weights, and keys of no use."""
    graph = kind()
    number = {city: index for index, city in enumerate(CITIES)}
    for city, (latitude, longitude) in CITIES.items():
        values = {"latitude": latitude, "longitude": longitude, "color": "red"}
        graph.add_node(number[city] if numbered else city, **values, **({"name": city} if numbered else {}))
    for source, target, capacity, delay, weight in LINKS:
        ends = (number[source], number[target]) if numbered else (source, target)
        graph.add_edge(*ends, capacity=capacity, delay=delay, weight=weight, fid=7)
        if graph.is_directed():
            graph.add_edge(*ends[::-1], capacity=capacity / 2, delay=delay, weight=weight + 1, fid=7)
    return graph


def write_files():
    nx.write_graphml(network(), "networkx.graphml", named_key_ids=False)
    nx.write_graphml(network(nx.DiGraph), "networkx_directed.graphml")
    parallel = network(nx.MultiGraph)
    parallel.add_edge("Bern", "Genf", capacity=1.0, delay=0.8, weight=9)
    nx.write_graphml(parallel, "networkx_parallel.graphml")
    nx.write_gml(network(), "networkx.gml")
    nx.write_gml(network(nx.MultiDiGraph), "networkx_directed.gml")
    plain = nx.DiGraph(network(nx.DiGraph, numbered=True))
    old, new = (nx.node_link_data(plain, edges=name) for name in ("links", "edges"))
    for name, data in (("node_link_old.json", old), ("node_link_new.json", new)):
        with open(name, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    # What TEAL's and NCFlow's files have: nodes without names, a capacity for each direction, nothing else.
    teal = nx.DiGraph()
    teal.add_nodes_from(plain.nodes)
    teal.add_edges_from((source, target, {"capacity": value}) for source, target, value in plain.edges(data="capacity"))
    with open("teal.json", "w", encoding="utf-8") as file:
        json.dump(nx.node_link_data(teal, edges="links"), file)
        file.write("\n")
    ascii_names = nx.relabel_nodes(network(), {"São": "Sao"})
    nx.write_edgelist(ascii_names, "networkx.edgelist")
    nx.write_edgelist(ascii_names, "networkx_bare.edgelist", data=False)
    nx.write_weighted_edgelist(ascii_names, "networkx_weighted.edgelist")
    with open("networkx.csv", "w", encoding="utf-8") as file:
        file.write("source,target,capacity,delay,weight,fid\n")
        for source, target, of in network().edges(data=True):
            file.write(f"{source},{target},{of['capacity']},{of['delay']},{of['weight']},{of['fid']}\n")
    graph = igraph.Graph.from_networkx(network())
    graph.vs["name"] = list(CITIES)
    del graph.vs["_nx_name"]
    graph.write_graphml("igraph.graphml")
    graph.write_gml("igraph.gml", creator="igraph")
    graph.vs["name"] = list(ascii_names)
    graph.write_ncol("igraph.ncol", names="name", weights="weight")


def total(graph, key):
    """The sum of a key over all edges; None if no edge has it."""
    values = [float(value) for _, _, value in graph.edges(data=key) if value is not None]
    return round(sum(values), 9) if values else None


def expected(graph):
    """What is compared: rates in Gbit/s, delays in ms. A link is an edge, or two directed ones in opposite directions."""
    edges = graph.number_of_edges()
    links = edges
    if graph.is_directed():
        paired = sum(1 for source, target in graph.edges() if source < target and graph.has_edge(target, source))
        links = edges - paired
    return {
        "nodes": graph.number_of_nodes(), "edges": edges, "links": links, "rates": total(graph, "capacity"),
        "delays": total(graph, "delay"), "weights": total(graph, "weight"), "by": f"networkx {nx.__version__}",
    }  # fmt: skip


def node_link(name, edges):
    with open(name, encoding="utf-8") as file:
        return nx.node_link_graph(json.load(file), edges=edges)


def table(name, **how):
    import csv

    graph = how.pop("kind", nx.Graph)()
    with open(name, encoding="utf-8") as file:
        for row in csv.DictReader((line for line in file if not line.startswith("#")), **how):
            row = {key.lower(): value for key, value in row.items()}
            values = {key: float(row[key]) for key in ("capacity", "delay", "weight") if row.get(key)}
            graph.add_edge(row["source"], row["target"], **values)
    return graph


READ = {
    "networkx.graphml": nx.read_graphml, "networkx_directed.graphml": nx.read_graphml,
    "networkx_parallel.graphml": nx.read_graphml, "igraph.graphml": nx.read_graphml, "gephi.graphml": nx.read_graphml,
    "yed.graphml": nx.read_graphml, "networkx.gml": nx.read_gml, "networkx_directed.gml": nx.read_gml,
    # networkx refuses igraph's UTF-8 in GML.
    "igraph.gml": lambda name: network(),
    "node_link_old.json": lambda name: node_link(name, "links"), "node_link_new.json": lambda name: node_link(name, "edges"),
    "teal.json": lambda name: node_link(name, "links"), "networkx.edgelist": nx.read_edgelist,
    "networkx_bare.edgelist": nx.read_edgelist, "networkx_weighted.edgelist": nx.read_weighted_edgelist,
    "igraph.ncol": nx.read_weighted_edgelist, "networkx.csv": table, "gephi.csv": table,
    "directions.csv": lambda name: table(name, kind=nx.DiGraph, delimiter=";"),
}  # fmt: skip

# nodes, edges, links, rates in Gbit/s, delays in ms, weights
HAND = {
    # 2 × 9920 Mbit/s; the third link has a module of 40 000 Mbit/s only.
    "sndlib.xml": (3, 3, 3, 9.92 + 9.92 + 40, None, None),
    "sndlib.txt": (3, 3, 3, 9.92 + 9.92 + 40, None, None),
    # Two links in both directions and one in one; 10 000 000 and 1 000 000 kbit/s; 700 and 1200 µs.
    "repetita.graph": (3, 5, 3, 2 * 10 + 2 * 10 + 1, 2 * 0.7 + 2 * 1.2 + 0.5, 2 * 3 + 2 * 2 + 9),
    "rocketfuel.cch": (4, 4, 4, None, None, None),
    # Two links in both directions; one has other weights in each.
    "isp/weights.intra": (3, 4, 2, None, 2 * 3 + 2 * 11, 1 + 1 + 2.5 + 4),
    "latencies.intra": (3, 4, 2, None, 2 * 3 + 2 * 11, None),
    # Four undirected edges and a directed one; one bandwidth is -1, none.
    "waxman.brite": (5, 5, 5, (10 + 10 + 100 + 45) / 1000, 1.1 + 2.1 + 3.9 + 4.1 + 5, None),
    # Of five links one is to the host; labels of two have rates and delays.
    "lab.clab.yml": (4, 4, 4, 10 + 0.5, 2 + 0.75, None),
    # Space-separated with a header: 1000 and 400 Mbit/s; 200 km are 1 ms.
    "header.txt": (3, 2, 2, 1.4, 1 + 0.5, None),
    "header.tsv": (3, 2, 2, 1.4, 1 + 0.5, None),
}


def main():
    write_files()
    values = {name: expected(read(name)) for name, read in READ.items()}
    for name, (nodes, edges, links, rates, delays, weights) in HAND.items():
        rounded = [None if value is None else round(value, 9) for value in (rates, delays, weights)]
        values[name] = dict(zip(("nodes", "edges", "links", "rates", "delays", "weights", "by"),
                                (nodes, edges, links, *rounded, "hand")))  # fmt: skip
    with open("expected.json", "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(values[name])}" for name in sorted(values)) + "\n}\n")


main()
