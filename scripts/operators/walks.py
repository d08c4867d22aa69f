"""What happens to a site with two providers, and what its owner expects then. Each walk leaves rows of a table."""

import dataclasses
import time

from managers import ByHand, Dhcpcd, NetworkManager, Networkd
from sites import Edge, ExitHost, Host, HostReset, MasqueradedEdge, OwnHost, WaitingHost
from stage import NETWORKS, OTHERS, wait_for
from vpn import Vpn
import vpn

# New connections, of how many, this long after the event.
NEW, AFTER = 20, 3
# Connections that were there, and their longest silence if they may move.
HELD, STILL = 4, 10


@dataclasses.dataclass
class Row:
    """A judged measure: what was expected, and what came."""

    walk: str
    site: str
    what: str
    expected: str
    got: str
    holds: bool


def both(networks=NETWORKS):
    return dict(networks)


class Walk:
    """Builds a site, lets something happen to it under traffic, and counts what works then."""

    def __init__(self, name, site, happen, manager=ByHand, short=False, boots=False, prepare=None, needs=list, still=STILL):
        self.name, self.site, self.happen, self.manager, self.still = name, site, happen, manager, still
        # `prepare` happens before the daemon is there; `needs` says which programs are missing.
        self.short, self.boots, self.prepare, self.needs = short, boots, prepare, needs

    @property
    def title(self):
        """What the table calls it."""
        return self.name if self.manager is ByHand else f"{self.name}, {self.manager.name}"

    def missing(self):
        """The programs that this machine lacks for it."""
        return [*self.manager.missing(), *self.needs()]

    def run(self, stage):
        """Returns the rows; raises `Failure` if the walk cannot be gone to its end."""
        site = (WaitingHost if self.boots and self.site is Host else self.site)(stage, self.manager(stage))
        site.build(both(), configured=not self.boots)
        if self.prepare:
            self.prepare(site)
        site.launch(wait=not self.boots)
        held = []
        if not self.boots:
            time.sleep(1)
            held = [(kind, stage.hold(site.client, family, 18, HELD, mapped)) for kind, family, mapped in site.kinds]
            time.sleep(2)
        self.happen(site)
        time.sleep(AFTER)
        tries = [(kind, stage.try_new(site.client, family, NEW, mapped=mapped)) for kind, family, mapped in site.kinds]
        rows = []
        for kind, process in tries:
            new = stage.result(process, 100)
            got = f"{new['answered']} by {', '.join(sorted(new['sources'])) or 'none'}"
            rows.append(self.row(site, f"new, {kind}", f"{NEW} of {NEW} answered", got, new["answered"] == NEW))
        rows += [self.held_row(site, kind, stage.result(process)) for kind, process in held]
        left = site.end()
        rows.append(self.row(site, "left in the kernel", "nothing", "; ".join(left)[:80] or "nothing", not left))
        return rows

    def row(self, site, what, expected, got, holds):
        return Row(self.title, site.name, what, expected, got, holds)

    def held_row(self, site, kind, reports):
        """Connections from before: where they may move or are reset, all go on; elsewhere what became of them is reported."""
        gaps = sorted(report["gap"] for report in reports)
        alive = sum(gap < self.still for gap in gaps)
        anew = sum(report["opened"] > 1 for report in reports)
        got = f"{alive} of {HELD} go on" + (f", {anew} opened anew" if anew else "") + f", longest silence {gaps[-1]:.1f} s"
        expected = f"{HELD} of {HELD} go on" if site.held_moves else "no promise"
        return self.row(site, f"held, {kind}", expected, got, alive == HELD or not site.held_moves)


def dies_silently(site):
    site.die(0)


def one_family_dies(site):
    site.stage.die(0, [6])


def carrier_goes(site):
    site.stage.ip("isp0", "link set site down")
    site.own_moves(1)


def routes_are_withdrawn(site):
    """The first provider withdraws its default routes, and forwards nothing any more."""
    site.stage.ip("site", "route del default dev wan0\n-6 route del default dev wan0")
    site.die(0)


def connect_anew(site):
    """Applications open connections: a daemon knows nothing of what is not used."""
    for _, family, mapped in site.kinds:
        site.stage.hold(site.client, family, 8, HELD, mapped)
    time.sleep(2)


def address_changes(site):
    """The first provider has another address and another gateway, and applications connect anew; then the second one dies."""
    site.manager.change(0, OTHERS[0])
    time.sleep(1)
    connect_anew(site)
    site.die(1)


def gateway_dies(site):
    """The first provider's gateway is gone, and the link to it is up: no host answers ARP or neighbour solicitations."""
    site.stage.ip("isp0", "link set site arp off address 02:00:00:00:00:98")
    site.own_moves(1)


def gateway_is_replaced(site):
    """The first provider's gateway becomes another machine, which announces the same addresses; then the second provider dies."""
    site.stage.run("isp0", "sysctl", "-qw", "net.ipv4.conf.site.arp_notify=1", "net.ipv6.conf.site.ndisc_notify=1")
    site.stage.ip("isp0", "link set site address 02:00:00:00:00:99")
    time.sleep(3)
    site.die(1)


def backups_address_changes(site):
    """The second provider has another address and gateway, and applications connect anew; then the first one dies."""
    site.manager.change(1, OTHERS[1])
    time.sleep(1)
    connect_anew(site)
    site.die(0)


def both_addresses_change(site):
    """Both providers have other addresses and gateways, and applications connect anew; then the first one dies."""
    for provider in (0, 1):
        site.manager.change(provider, OTHERS[provider])
    time.sleep(1)
    connect_anew(site)
    site.die(0)


def comes_back_with_another_index(site):
    """The first interface goes and comes back as PPP's do; then the second provider dies."""
    site.stage.ip("site", "link del wan0")
    site.own_moves(1)
    time.sleep(1)
    site.stage.plug(0, NETWORKS[0])
    site.manager.replug(0, NETWORKS[0])
    time.sleep(1)
    connect_anew(site)
    site.die(1)


def machine_sleeps(site):
    """The machine is suspended; while it sleeps the first provider dies and recovers, and then the second one dies."""
    def meanwhile():
        site.stage.die(0)
        time.sleep(1)
        site.stage.revive(0)
    site.freeze(4, meanwhile)
    time.sleep(1)
    site.die(1)


def network_comes_late(site):
    """The daemon starts with nothing there: addresses and routes come; then the first provider dies."""
    time.sleep(2)
    site.connect(both())
    wait_for(site.is_ready, 30, "the daemon to be ready when the network is there")
    time.sleep(2)
    connect_anew(site)
    site.die(0)


def manager_restarts(site):
    """The network manager is restarted, and removes what it does not know; then the first provider dies."""
    site.manager.restart()
    time.sleep(4)
    site.die(0)


def vpn_comes(site):
    """The owner's VPN takes all packets."""
    (site.vpn if hasattr(site, "vpn") else Vpn(site.stage)).up()


def vpn_is_there(site):
    site.vpn = Vpn(site.stage)
    site.vpn.up()


def nothing(_site):
    """What was prepared is all."""


HOSTS, EDGES = (Host, OwnHost), (Edge, MasqueradedEdge)
WALKS = [
    *(Walk("dies silently", site, dies_silently, short=True) for site in (Host, HostReset, OwnHost, ExitHost, Edge, MasqueradedEdge)),
    *(Walk("one family dies", site, one_family_dies, short=site is Edge) for site in (Host, Edge, MasqueradedEdge)),
    *(Walk("carrier goes", site, carrier_goes, still=STILL if site is HostReset else 1, short=site in (HostReset, OwnHost)) for site in (Host, HostReset, OwnHost, Edge, MasqueradedEdge)),
    *(Walk("gateway dies", site, gateway_dies) for site in HOSTS + EDGES),
    *(Walk("gateway is replaced", site, gateway_is_replaced) for site in HOSTS + EDGES),
    *(Walk("routes are withdrawn", site, routes_are_withdrawn) for site in HOSTS + EDGES),
    *(Walk("address changes", site, address_changes, short=site is MasqueradedEdge) for site in HOSTS + EDGES),
    *(Walk("backup's address changes", site, backups_address_changes) for site in HOSTS + EDGES),
    *(Walk("both addresses change", site, both_addresses_change, short=site in (Host, MasqueradedEdge)) for site in HOSTS + EDGES),
    *(Walk("another index", site, comes_back_with_another_index, short=site is Host) for site in HOSTS + EDGES),
    *(Walk("machine sleeps", site, machine_sleeps) for site in HOSTS + EDGES),
    *(Walk("network comes late", site, network_comes_late, boots=True, short=site is Edge) for site in (Host, Edge, MasqueradedEdge)),
    *(
        Walk(name, site, happen, manager=manager, short=short and manager is Dhcpcd and site is Host)
        for manager in (Dhcpcd, Networkd, NetworkManager)
        for site in (Host, MasqueradedEdge)
        for name, happen, short in (("dies silently", dies_silently, False), ("address changes", address_changes, True))
    ),
    *(Walk("VPN comes", site, vpn_comes, needs=vpn.missing, short=site is Host) for site in (Host, MasqueradedEdge)),
    *(Walk("VPN is there", site, nothing, needs=vpn.missing, prepare=vpn_is_there) for site in (Host, MasqueradedEdge)),
    *(Walk("manager restarts", site, manager_restarts, manager=Networkd) for site in (Host, MasqueradedEdge)),
]
