"""A VPN for all of the site's packets: wg-quick at the site, wireguard-go where the kernel has no WireGuard, the far end in the world."""

import os
import shutil

from stage import SERVER, Failure, wait_for

NEAR, FAR = ("10.77.0.2", "fd77::2"), ("10.77.0.1", "fd77::1")
PORT = 51820


def missing():
    """What this machine lacks for it."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return [program for program in ("wg", "wg-quick", "wireguard-go") if not shutil.which(program, path=path)]


class Vpn:
    """The far end is up from the start; `up` is what the owner does."""

    def __init__(self, stage):
        self.stage = stage
        self.mounts = {node: stage.private(node) for node in ("site", "world")}
        keys = {node: self.inside(node, "wg", "genkey").strip() for node in self.mounts}
        public = {node: self.inside(node, "wg", "pubkey", input=key) .strip() for node, key in keys.items()}
        self.inside("world", "sh", "-c", "umask 77; mkdir -p /run/wg; cat > /run/wg/key", input=keys["world"])
        self.inside("world", "wireguard-go", "vpnw")
        self.inside(
            "world", "wg", "set", "vpnw", "private-key", "/run/wg/key", "listen-port", PORT,
            "peer", public["site"], "allowed-ips", f"{NEAR[0]}/32,{NEAR[1]}/128",
        )
        stage.ip("world", f"""addr add {FAR[0]}/24 dev vpnw
            addr add {FAR[1]}/64 dev vpnw nodad
            link set vpnw mtu 1380 up""")
        conf = f"""[Interface]
            PrivateKey = {keys['site']}
            Address = {NEAR[0]}/24, {NEAR[1]}/64
            [Peer]
            PublicKey = {public['world']}
            Endpoint = {SERVER[4]}:{PORT}
            AllowedIPs = 0.0.0.0/0, ::/0
            """
        conf = "\n".join(line.strip() for line in conf.splitlines())
        self.inside("site", "sh", "-c", "umask 77; mkdir -p /run/wg; cat > /run/wg/vpn0.conf", input=conf)

    def inside(self, node, *command, **options):
        mounts = str(self.mounts[node].pid)
        return self.stage.run(node, "nsenter", "-t", mounts, "-m", "--", *command, **options)

    def up(self):
        """`wg-quick up`, and a first packet through the tunnel."""
        self.inside("site", "wg-quick", "up", "/run/wg/vpn0.conf")
        wait_for(lambda: self.carries(), 10, "the tunnel to carry packets")

    def carries(self):
        try:
            self.stage.run("site", "ping", "-c1", "-W1", "-I", "vpn0", FAR[0])
        except Failure:
            return False
        return True

    def down(self):
        self.inside("site", "wg-quick", "down", "/run/wg/vpn0.conf")
