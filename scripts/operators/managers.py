"""Who gives the site's interfaces their addresses and routes: a script of the owner, or a program with DHCP and RA."""

import os
import shutil
import textwrap
import time

from stage import wait_for

WANS = (0, 1)
DNSMASQ = "--no-daemon --conf-file=/dev/null --port=0 --dhcp-authoritative --dhcp-rapid-commit"


class ByHand:
    """Static addresses, set by commands."""

    name = "by hand"

    def __init__(self, stage):
        self.stage = stage

    @staticmethod
    def missing():
        """What this machine lacks for it; empty if nothing."""
        return []

    def start(self, networks):
        """Gives the site an address of each network, `(net4, net6)` by provider."""
        for provider in WANS:
            self.connect(provider, networks[provider])

    def connect(self, provider, network):
        four, six = network
        self.stage.ip("site", f"""addr add {four}.1/24 dev wan{provider}
            addr add {six}1/64 dev wan{provider} nodad
            route replace default via {four}.2 dev wan{provider} metric {100 + provider}
            -6 route replace default via fe80::1 dev wan{provider} metric {100 + provider}""")

    def change(self, provider, network):
        """The provider has another network now."""
        self.stage.give(provider, network)
        self.stage.ip("site", f"addr flush dev wan{provider} scope global")
        self.connect(provider, network)

    def replug(self, provider, network):
        """The interface is a new one with the former name."""
        self.connect(provider, network)


class Automatic:
    """DHCP from dnsmasq and RA from radvd at each provider; subclasses are the site's clients."""

    programs = ()
    # How long the modem takes to restart, in seconds.
    outage = 1

    def __init__(self, stage):
        self.stage = stage
        self.servers = {}
        self.mounts = None

    @classmethod
    def missing(cls):
        path = os.environ["PATH"] + ":/usr/sbin:/sbin:/lib/systemd"
        return [program for program in ("dnsmasq", "radvd", *cls.programs) if not shutil.which(program, path=path)]

    def start(self, networks):
        for provider in WANS:
            self.serve(provider, networks[provider])
        self.mounts = self.stage.private("site")
        self.client()
        for provider in WANS:
            self.await_address(provider, networks[provider])

    def serve(self, provider, network):
        """Starts the provider's servers again, for this network."""
        stage, isp, (four, six) = self.stage, f"isp{provider}", network
        for process in self.servers.pop(provider, []):
            process.terminate()
            process.wait()
        leases = f"--dhcp-leasefile={stage.work}/leases{provider}-{four}"
        options = f"{DNSMASQ} --interface=site --bind-interfaces --dhcp-range={four}.1,{four}.1,2m {leases}"
        conf = stage.work / f"radvd{provider}.conf"
        conf.write_text(
            f"interface site {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 30;\n"
            f"prefix {six}/64 {{ AdvValidLifetime 60; AdvPreferredLifetime 30; }}; }};\n"
        )
        conf.chmod(0o644)
        self.servers[provider] = [
            stage.start(isp, "dnsmasq", *options.split(), f"--dhcp-option=3,{four}.2", "--user=root", log="dnsmasq.log"),
            stage.start(isp, "radvd", "--nodaemon", "-m", "stderr", "-C", conf, "-p", f"{conf}.pid", log="radvd.log"),
        ]

    def inside(self, *command, check=True):
        """Runs a program there."""
        return self.stage.run("site", "nsenter", "-t", self.mounts.pid, "-m", "--", *command, check=check)

    def start_inside(self, *command, log):
        """Starts a program there."""
        return self.stage.start("site", "nsenter", "-t", self.mounts.pid, "-m", "--", *command, log=log)

    def write(self, path, text, mode="644"):
        """Writes a file there."""
        script = f"mkdir -p $(dirname {path}) && cat > {path} && chmod {mode} {path}"
        self.stage.run("site", "nsenter", "-t", str(self.mounts.pid), "-m", "--", "sh", "-c", script, input=textwrap.dedent(text))

    def has_address(self, provider, network):
        four, six = network
        shown = self.stage.ip("site", f"addr show dev wan{provider}", check=False)
        routes = self.stage.ip("site", "route show default") + self.stage.ip("site", "-6 route show default")
        usable = [line for line in shown.splitlines() if "tentative" not in line]
        return f"{four}.1/" in shown and any(six[:-1] in line for line in usable) and routes.count(f"dev wan{provider}") >= 2

    def await_address(self, provider, network):
        wait_for(lambda: self.has_address(provider, network), 40, f"{self.name} to set addresses of wan{provider}")

    def change(self, provider, network):
        """The provider's modem restarts, and has another network then."""
        stage = self.stage
        stage.give(provider, network)
        stage.ip(f"isp{provider}", "link set site down")
        self.serve(provider, network)
        time.sleep(self.outage)
        stage.ip(f"isp{provider}", "link set site up")
        # The kernel dropped its IPv6 addresses, and routes, with the link.
        stage.give(provider, network)
        self.await_address(provider, network)

    def replug(self, provider, network):
        self.serve(provider, network)
        self.await_address(provider, network)


class Dhcpcd(Automatic):
    """dhcpcd, which does DHCP and RA for all interfaces."""

    name = "dhcpcd"
    programs = ("dhcpcd",)

    def client(self):
        self.write("/run/dhcpcd.conf", "duid\nnoarp\nnodev\nnohook resolv.conf, hostname, timesyncd.conf, ntp.conf\nslaac hwaddr\nallowinterfaces wan*\n")
        self.process = self.start_inside("dhcpcd", "-B", "-f", "/run/dhcpcd.conf", log="client.log")


class Networkd(Automatic):
    """systemd-networkd."""

    name = "systemd-networkd"
    programs = ("systemd-networkd",)

    def client(self):
        for provider in WANS:
            self.write(
                f"/run/systemd/network/wan{provider}.network",
                f"""\
                [Match]
                Name=wan{provider}
                [Network]
                DHCP=ipv4
                IPv6AcceptRA=yes
                [DHCPv4]
                RouteMetric={100 + provider}
                [IPv6AcceptRA]
                RouteMetric={100 + provider}
                """,
            )
        self.inside("sh", "-c", "mkdir -p /run/systemd/netif; chown -R systemd-network: /run/systemd/netif")
        self.process = self.start_inside("/lib/systemd/systemd-networkd", log="client.log")

    def restart(self):
        """As an update of the package does."""
        self.process.terminate()
        self.process.wait()
        self.process = self.start_inside("/lib/systemd/systemd-networkd", log="client.log")


class NetworkManager(Automatic):
    """NetworkManager, with a bus of its own."""

    name = "NetworkManager"
    programs = ("NetworkManager", "dbus-daemon")
    # It ignores shorter ones.
    outage = 8

    def client(self):
        self.write("/run/dbus.conf", """\
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
            <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
            """)
        self.inside("mkdir", "-p", "/run/dbus", "/run/NetworkManager", "/var/lib/NetworkManager")
        self.start_inside("dbus-daemon", "--config-file=/run/dbus.conf", "--nofork", "--nopidfile", log="bus.log")
        self.write("/run/nm/NetworkManager.conf", """\
            [main]
            plugins=keyfile
            dhcp=internal
            dns=none
            rc-manager=unmanaged
            no-auto-default=*
            [keyfile]
            path=/run/nm/connections
            unmanaged-devices=interface-name:lo
            """)
        for provider in WANS:
            self.write(f"/run/nm/connections/wan{provider}.nmconnection", f"""\
                [connection]
                id=wan{provider}
                type=ethernet
                interface-name=wan{provider}
                [ipv4]
                method=auto
                route-metric={100 + provider}
                [ipv6]
                method=auto
                addr-gen-mode=0
                route-metric={100 + provider}
                """, mode="600")
        time.sleep(0.5)
        self.process = self.start_inside(
            "NetworkManager", "--debug", "--log-level=INFO", "--config=/run/nm/NetworkManager.conf", "--state-file=/run/nm/state",
            "--pid-file=/run/nm/pid", log="client.log",
        )
