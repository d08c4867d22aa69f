"""What an owner has: a host with the agent, or an edge with route control; addresses of the providers, or the site's own."""

import json
import signal
import time

from stage import FAMILIES, OWN, OWN_NET, TARGETS, Failure, wait_for

# An exit of the site's owner, in the world.
EXIT = {4: TARGETS[4][0]}
EXIT_PREFIX = "2001:db8:3:e::/64"
EXIT_SIDS = ("2001:db8:3:e::10", "2001:db8:3:e::11")


class Site:
    """A stage with a daemon of ours."""

    edge = False
    own = False

    def __init__(self, stage, manager):
        self.stage, self.manager, self.daemon = stage, manager, None

    def build(self, networks, configured=True):
        self.stage.build(edge=self.edge, networks=networks)
        if configured:
            self.connect(networks)

    def connect(self, networks):
        self.manager.start(networks)

    def start(self, *arguments, wait=True):
        """Starts the daemon, and waits until it is ready."""
        self.daemon = self.stage.start("site", self.stage.sidestep, *arguments, log="daemon.log", env=ENVIRONMENT)
        if wait:
            wait_for(self.is_ready, 20, "the daemon to be ready")

    def log(self):
        return (self.stage.work / "daemon.log").read_text()

    def freeze(self, seconds, meanwhile=lambda: None):
        """The daemon does not run for a while, as in a suspended machine."""
        self.daemon.send_signal(signal.SIGSTOP)
        time.sleep(seconds / 2)
        meanwhile()
        time.sleep(seconds / 2)
        self.daemon.send_signal(signal.SIGCONT)

    def end(self):
        """Ends the daemon as systemd does, and reports what is left of it."""
        self.daemon.terminate()
        code = self.daemon.wait(20)
        left = []
        for family in FAMILIES:
            left += [line for line in self.stage.ip("site", f"-{family} rule show").splitlines() if "proto 83" in line]
            left += self.stage.ip("site", f"-{family} route show table all proto 83").splitlines()
        return [*left, *([f"exit code {code}"] if code else [])]

    def die(self, provider, families=FAMILIES):
        self.stage.die(provider, families)
        self.own_moves(1 - provider)

    def own_moves(self, provider):
        """The world's routing follows for the site's own addresses, as it would by BGP."""
        if self.own:
            self.stage.own_by(provider)


ENVIRONMENT = {"SIDESTEP_LOG": "info", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "RUST_BACKTRACE": "0"}


class Host(Site):
    """A host with the agent, configured by `agent init`; its addresses are the providers'."""

    name = "host"
    client = "site"
    kinds = (("IPv4", 4, False), ("mapped", 4, True), ("IPv6", 6, False))
    knobs = ""
    held_moves = False

    def launch(self, wait=True):
        config = self.stage.work / "agent.toml"
        config.write_text(self.config())
        self.start("agent", "--config", config, "--cgroup", self.stage.group, "--no-state", wait=wait)

    def config(self):
        text = self.stage.run("site", self.stage.sidestep, "agent", "init")
        return text.replace("[pathchanger]\n", f"[pathchanger]\n{self.knobs}", 1)

    def is_ready(self):
        if self.daemon.poll() is not None:
            raise Failure(f"the agent ended: {self.log().strip().splitlines()[-1:]}")
        return "ready" in self.log().splitlines()


class WaitingHost(Host):
    """A host whose agent starts before its network is there: its file cannot come from `agent init`."""

    def config(self):
        paths = ", ".join(f'{{ name = "wan{k}", via = "auto", dev = "wan{k}" }}' for k in (0, 1))
        return "".join(f'[[destination]]\nprefix = "{net}"\npath = [{paths}]\n' for net in ("0.0.0.0/0", "::/0"))


class HostReset(Host):
    """The same with `on_dead = "reset"`."""

    name = "host, on_dead = reset"
    knobs = 'on_dead = "reset"\n'
    held_moves = True


class OwnHost(Host):
    """A host with addresses of its own, which both providers carry."""

    name = "host, own addresses"
    own = True
    held_moves = True

    def connect(self, networks):
        super().connect(networks)
        self.stage.ip("site", f"addr add {OWN[4]}/32 dev lo\naddr add {OWN[6]}/128 dev lo nodad")

    def config(self):
        text = ""
        for family, net in ((4, "0.0.0.0/0"), (6, "::/0")):
            bits = 32 if family == 4 else 128
            paths = ", ".join(
                f'{{ name = "wan{k}", via = "auto", dev = "wan{k}", sources = ["{OWN[family]}/{bits}"] }}' for k in (0, 1)
            )
            text += f'[[destination]]\nprefix = "{net}"\npath = [{paths}]\n'
        return text


class ExitHost(Host):
    """A host whose packets go to an exit by a tunnel through each provider, IPv6 by an SRv6 segment list for each; the exit answers
    by route control, which probes the host through the tunnels. The addresses of the host's connections are its own."""

    name = "host, an exit"
    held_moves = True

    def connect(self, networks):
        super().connect(networks)
        self.stage.ip("site", f"addr add {OWN[4]}/32 dev lo\naddr add {OWN[6]}/128 dev lo nodad")
        for provider in (0, 1):
            near, number = f"{networks[provider][0]}.1", 10 + provider
            # What the kernel learns of a VXLAN's addresses has no interface: packets would leave by the best route.
            link = f"link add exit{provider} type vxlan id {number} dstport 4789 nolearning"
            self.stage.ip("site", f"{link} local {near} remote {EXIT[4]} dev wan{provider}")
            self.stage.ip("world", f"{link} local {EXIT[4]} remote {near}")
            for node, host in (("site", 2), ("world", 1)):
                self.stage.ip(node, f"""addr add 10.66.{provider}.{host}/24 dev exit{provider}
                    addr add fd66:{provider}::{host}/64 dev exit{provider} nodad
                    link set exit{provider} up""")
            # The exit's SIDs, one for each provider. What they decapsulate is for the exit itself.
            sid = EXIT_SIDS[provider]
            self.stage.ip("world", f"-6 route add {sid}/128 encap seg6local action End.DT6 table local dev wan{provider}")
            self.stage.ip("site", f"-6 route add {sid}/128 via fe80::1 dev wan{provider}")
        self.control_exit()

    def control_exit(self):
        """The exit's route control; it probes the host by each tunnel."""
        text = f'[route_control]\ndestinations = ["{OWN[4]}/32", "{OWN[6]}/128"]\n'
        for provider in (0, 1):
            hops = f'"10.66.{provider}.2", "fd66:{provider}::2"'
            text += f'[[egress]]\nname = "exit{provider}"\ndev = "exit{provider}"\nvia = [{hops}]\n'
        text += "".join(f'[[target]]\naddress = "{OWN[family]}"\n' for family in FAMILIES)
        config = self.stage.work / "exit.toml"
        config.write_text(text)
        self.stage.start("world", self.stage.sidestep, "edge", "route-control", "--config", config, log="exit.log", env=ENVIRONMENT)

    def config(self):
        four = ", ".join(f'{{ name = "wan{k}", via = "10.66.{k}.1", dev = "exit{k}" }}' for k in (0, 1))
        six = ", ".join(f'{{ name = "wan{k}", segments = ["{EXIT_SIDS[k]}"], encap = true }}' for k in (0, 1))
        four, six = (paths.replace(" }", f', sources = ["{OWN[family]}/{bits}"] }}') for family, bits, paths in ((4, 32, four), (6, 128, six)))
        alone = "".join(f'[[destination]]\nprefix = "{exit}"\npath = []\n' for exit in (f"{EXIT[4]}/32", EXIT_PREFIX))
        return f'[[destination]]\nprefix = "0.0.0.0/0"\npath = [{four}]\n[[destination]]\nprefix = "::/0"\npath = [{six}]\n{alone}'


class Edge(Site):
    """A site with a prefix of its own behind an edge with route control."""

    name = "edge"
    edge = True
    own = True
    client = "lan"
    kinds = (("IPv4", 4, False), ("IPv6", 6, False))
    held_moves = True
    settings = ""

    def launch(self, wait=True):
        config = self.stage.work / "route-control.toml"
        egresses = "".join(f'[[egress]]\nname = "isp{k}"\ndev = "wan{k}"\nvia = ["auto"]\n' for k in (0, 1))
        targets = "".join(f'[[target]]\naddress = "{a}"\n' for family in FAMILIES for a in TARGETS[family])
        config.write_text(f'[route_control]\ndestinations = ["0.0.0.0/0", "::/0"]\n{self.settings}{egresses}{targets}')
        self.start("edge", "route-control", "--config", config, wait=wait)

    def status(self):
        shown = self.stage.run(
            "site", self.stage.sidestep, "edge", "route-control", "status", "--json", check=False, env=ENVIRONMENT
        )
        return json.loads(shown) if shown.startswith("{") else {}

    def is_ready(self):
        if self.daemon.poll() is not None:
            raise Failure(f"route control ended: {self.log().strip().splitlines()[-1:]}")
        egresses = self.status().get("egresses", [])
        return bool(egresses) and all(egress["health"] == "fine" for egress in egresses)


class MasqueradedEdge(Edge):
    """A site with private addresses, which each provider's interface masquerades."""

    name = "edge, masquerade"
    own = False
    held_moves = False
    settings = 'moves = "new-connections"\n'

    def build(self, networks, configured=True):
        super().build(networks, configured)
        table = """table inet nat {
            chain post { type nat hook postrouting priority srcnat; oifname { "wan0", "wan1", "vpn0" } masquerade; }
        }"""
        self.stage.run("site", "nft", "-f", "-", input=table)
        # The providers know none of the site's addresses.
        for provider in (0, 1):
            for family in FAMILIES:
                self.stage.ip(f"isp{provider}", f"-{family} route del {OWN_NET[family]}")
