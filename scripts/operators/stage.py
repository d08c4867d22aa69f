"""A site with two providers, in network namespaces: what walks stand on. All of it is gone when the stage is closed."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
PORT = 7000
SERVER = {4: "10.2.0.1", 6: "2001:db8:2::1"}
TARGETS = {4: ["10.3.0.1", "10.3.0.2", "10.3.0.3"], 6: ["2001:db8:3::1", "2001:db8:3::2", "2001:db8:3::3"]}
# The site's own addresses, which both providers carry.
OWN = {4: "10.1.0.1", 6: "2001:db8:1::1"}
OWN_NET = {4: "10.1.0.0/16", 6: "2001:db8:1::/48"}
# What leads to servers and targets.
FAR_NET = {4: "10.2.0.0/15", 6: "2001:db8:2::/47"}
FAMILIES = (4, 6)
SITE_LINK_LOCAL = "fe80::5"


# What each provider gives to the site, and what it gives later: the first three bytes of an IPv4 network, and an IPv6 prefix. The
# provider has `.2` and `::2` of it and `fe80::1`, a site by hand `.1` and `::1`.
NETWORKS = {0: ("10.9.0", "2001:db8:90::"), 1: ("10.9.1", "2001:db8:91::")}
OTHERS = {0: ("10.9.5", "2001:db8:95::"), 1: ("10.9.6", "2001:db8:96::")}


def link_to_world(provider):
    """The IPv6 addresses of a provider and of the world on the link between them."""
    return f"2001:db8:8{provider}::1", f"2001:db8:8{provider}::2"


class Failure(Exception):
    """What a walk waits for does not come."""


class Stage:
    """Nodes `site`, `isp0`, `isp1`, `world`, and `lan` behind the site if it is an edge."""

    def __init__(self, sidestep, number):
        self.sidestep = sidestep
        self.name = f"op{os.getpid()}-{number}"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sidestep-operators."))
        self.processes = []
        self.nodes = []
        self.group = cgroup_mount() / self.name
        self.group.mkdir()

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + 3
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        for process in self.processes:
            process.kill()
            process.wait()
        (self.group / "cgroup.kill").write_text("1")
        for node in self.nodes:
            for pid in output("ip", "netns", "pids", self.space(node)).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.space(node)], check=False)
        wait_for(lambda: remove_group(self.group), 5, "the control group to be empty")
        shutil.rmtree(self.work, ignore_errors=True)

    def space(self, node):
        return f"{self.name}-{node}"

    def add(self, *nodes):
        for node in nodes:
            subprocess.run(["ip", "netns", "add", self.space(node)], check=True)
            self.nodes.append(node)
            self.ip(node, "link set lo up")
            settings = "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
            for which in ("all", "default"):
                settings += f" net.ipv4.conf.{which}.rp_filter=0 net.ipv6.conf.{which}.accept_dad=0"
            self.run(node, "sysctl", "-qw", *settings.split())

    def ip(self, node, command, check=True):
        """`ip` in a node; several commands stand on lines of their own."""
        for line in command.strip().splitlines():
            done = subprocess.run(
                ["ip", "-n", self.space(node), *line.split()], capture_output=True, text=True, check=False
            )
            if check and done.returncode:
                raise Failure(f"ip in {node}: {line.strip()}: {done.stderr.strip()}")
        return done.stdout

    def command(self, node, *arguments):
        return ["ip", "netns", "exec", self.space(node), *map(str, arguments)]

    def run(self, node, *arguments, check=True, **options):
        """Runs a program in a node and returns what it prints."""
        done = subprocess.run(
            self.command(node, *arguments), capture_output=True, text=True, timeout=60, check=False, **options
        )
        if check and done.returncode:
            raise Failure(f"{' '.join(map(str, arguments))}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def start(self, node, *arguments, log=None, grouped=False, **options):
        """Starts a program in a node; `grouped` ones are the site's, whose connections the agent may move."""
        join = [sys.executable, "-c", ENTER, str(self.group)] if grouped else []
        output = (self.work / log).open("ab") if log else subprocess.DEVNULL
        options = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL, **options}
        process = subprocess.Popen(join + self.command(node, *arguments), **options)
        self.processes.append(process)
        return process

    def private(self, node):
        """A process in a mount namespace of its own: programs there keep their state in places that others would share."""
        # With a /sys that is read-only, as in a container, they do not wait for udev.
        script = (
            "mount --make-rprivate /; for d in /run /var/lib; do mount -t tmpfs none $d; done;"
            "mount -o remount,bind,ro /sys; touch /run/ready; exec sleep infinity"
        )
        holder = self.start(node, "unshare", "--mount", "sh", "-c", script)
        ready = lambda: pathlib.Path(f"/proc/{holder.pid}/root/run/ready").exists()
        wait_for(ready, 10, "a mount namespace")
        return holder

    def cable(self, node, device, other, other_device):
        self.ip(node, f"link add {device} type veth peer name {other_device} netns {self.space(other)}")
        self.ip(node, f"link set {device} up")
        self.ip(other, f"link set {other_device} up")

    def build(self, edge, networks):
        """The network without addresses and routes of the site towards its providers."""
        self.add("site", "isp0", "isp1", "world", *(["lan"] if edge else []))
        for provider in (0, 1):
            isp, (near, far) = f"isp{provider}", link_to_world(provider)
            self.cable(isp, "world", "world", f"wan{provider}")
            self.ip(isp, f"addr add 10.8.{provider}.1/24 dev world\naddr add {near}/64 dev world nodad")
            self.ip("world", f"addr add 10.8.{provider}.2/24 dev wan{provider}\naddr add {far}/64 dev wan{provider} nodad")
            for four, six in (NETWORKS[provider], OTHERS[provider]):
                self.ip("world", f"route add {four}.0/24 via 10.8.{provider}.1\n-6 route add {six}/64 via {near}")
            self.plug(provider, networks[provider])
            self.revive(provider)
            # It forwards packets from its own network and the site's only (BCP 38).
            self.run(isp, "nft", "-f", "-", input=INGRESS)
        for family in FAMILIES:
            for address in [SERVER[family], *TARGETS[family]]:
                self.ip("world", f"addr add {address} dev lo" + (" nodad" if family == 6 else ""))
        self.own_by(0)
        if edge:
            self.cable("lan", "eth0", "site", "inside")
            self.ip("lan", "addr add 10.1.0.1/24 dev eth0\naddr add 2001:db8:1::1/64 dev eth0 nodad")
            self.ip("site", "addr add 10.1.0.2/24 dev inside\naddr add 2001:db8:1::2/64 dev inside nodad")
            self.ip("lan", "route add default via 10.1.0.2\n-6 route add default via 2001:db8:1::2")
        where = [str(word) for family in FAMILIES for word in (SERVER[family], PORT)]
        self.start("world", sys.executable, HERE / "traffic.py", "serve", *where, log="server.log")

    def plug(self, provider, network):
        """A cable between the site's `wanK` and the provider, which has a network for the site."""
        self.cable("site", f"wan{provider}", f"isp{provider}", "site")
        self.ip("site", f"addr add {SITE_LINK_LOCAL}/64 dev wan{provider} nodad")
        self.give(provider, network)

    def give(self, provider, network):
        """The provider has this network for the site, and no other."""
        isp, (four, six) = f"isp{provider}", network
        self.ip(isp, "addr flush dev site scope global", check=False)
        self.ip(isp, f"""addr add {four}.2/24 dev site
            addr add {six}2/64 dev site nodad
            addr replace fe80::1/64 dev site nodad
            route replace {OWN_NET[4]} via {four}.1
            -6 route replace {OWN_NET[6]} via {SITE_LINK_LOCAL} dev site""")

    def die(self, provider, families=FAMILIES):
        """The provider swallows all packets between the site and the world, and sends no errors."""
        for family in families:
            self.ip(f"isp{provider}", f"-{family} route replace blackhole {FAR_NET[family]}")

    def revive(self, provider, families=FAMILIES):
        for family in families:
            via = f"10.8.{provider}.2" if family == 4 else link_to_world(provider)[1]
            self.ip(f"isp{provider}", f"-{family} route replace {FAR_NET[family]} via {via}")

    def own_by(self, provider):
        """The world sends packets for the site's own addresses by this provider."""
        near = link_to_world(provider)[0]
        self.ip("world", f"route replace {OWN_NET[4]} via 10.8.{provider}.1\n-6 route replace {OWN_NET[6]} via {near}")

    def try_new(self, node, family, count=20, timeout=3, mapped=False):
        """Starts to open new connections to the server one after another; `result` waits for the report."""
        return self._traffic("try", node, family, count, timeout, mapped)

    def hold(self, node, family, seconds, count=4, mapped=False):
        """Starts connections that exchange bytes for some seconds; `result` waits for the report."""
        return self._traffic("hold", node, family, count, seconds, mapped)

    def _traffic(self, what, node, family, count, number, mapped):
        kind = "mapped" if mapped else "plain"
        words = (what, SERVER[family], PORT, count, number, kind)
        return self.start(
            node, sys.executable, HERE / "traffic.py", *words, grouped=node == "site", stdout=subprocess.PIPE
        )

    def result(self, process, timeout=60):
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            raise Failure("the site's program does not end") from late
        if not printed:
            raise Failure("the site's program says nothing")
        return json.loads(printed)


INGRESS = """table inet ingress {
    chain forward { type filter hook forward priority 0; iifname "site" fib saddr . iif oif missing drop; }
}"""
ENTER = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def cgroup_mount():
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2":
            return pathlib.Path(words[1])
    raise Failure("this needs control groups, version 2")


def remove_group(group):
    for directory in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
        directory.rmdir()
    try:
        group.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def output(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout


def wait_for(condition, seconds, what):
    """Waits until a condition holds, and returns after how many seconds it did; `Failure` if it does not come."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise Failure(f"waited {seconds} s without success for {what}")
        time.sleep(0.05)
    return time.monotonic() - begin
