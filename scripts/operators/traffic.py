"""What programs of a site do in a walk: `serve`, `try` new connections, `hold` connections. Prints a JSON object a line."""

import json
import socket
import sys
import threading
import time

BYTES = b"x" * 20


def connect(host, port, mapped, timeout):
    """A connection by an IPv6 socket where the address or the caller wants one; raises OSError."""
    address = f"::ffff:{host}" if mapped else host
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    one.settimeout(timeout)
    try:
        one.connect((address, port))
    except OSError:
        one.close()
        raise
    return one


def exchange(one):
    """Sends some bytes and receives them again; raises OSError."""
    one.sendall(BYTES)
    got = 0
    while got < len(BYTES):
        some = one.recv(len(BYTES) - got)
        if not some:
            raise ConnectionError("closed by the other end")
        got += len(some)


def serve(*addresses):
    """Echoes what comes to these addresses, `HOST PORT` each."""
    for host, port in zip(addresses[::2], addresses[1::2]):
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, int(port)))
        listener.listen(256)
        threading.Thread(target=accept, args=(listener,)).start()


def accept(listener):
    while True:
        one, _ = listener.accept()
        threading.Thread(target=echo, args=(one,), daemon=True).start()


def echo(one):
    try:
        while some := one.recv(65536):
            one.sendall(some)
    except OSError:
        pass
    one.close()


def attempt(host, port, count, timeout, mapped):
    """Opens connections one after another, each for one exchange, and reports how many worked and by which addresses."""
    answered, sources, errors = 0, {}, {}
    for _ in range(count):
        try:
            with connect(host, port, mapped, timeout) as one:
                exchange(one)
                source = one.getsockname()[0].removeprefix("::ffff:")
            answered += 1
            sources[source] = sources.get(source, 0) + 1
        except OSError as error:
            errors[str(error)] = errors.get(str(error), 0) + 1
    print(json.dumps({"answered": answered, "of": count, "sources": sources, "errors": errors}), flush=True)


def hold(host, port, count, seconds, mapped):
    """Exchanges bytes over connections until the time is over, and reports how each fared; one that ended is opened again."""
    reports = [{} for _ in range(count)]
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=hold_one, args=(host, port, end, mapped, report)) for report in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(reports), flush=True)


def hold_one(host, port, end, mapped, report):
    report.update(exchanges=0, gap=0.0, opened=0, ended=[], first=None, last=None)
    good = time.monotonic()
    while (now := time.monotonic()) < end:
        try:
            with connect(host, port, mapped, max(0.5, min(5.0, end - now))) as one:
                report["opened"] += 1
                report["last"] = one.getsockname()[0].removeprefix("::ffff:")
                report["first"] = report["first"] or report["last"]
                # What is stuck stays stuck until the kernel ends it.
                one.settimeout(max(0.1, end - time.monotonic()))
                while time.monotonic() < end:
                    exchange(one)
                    now = time.monotonic()
                    report["exchanges"] += 1
                    report["gap"], good = max(report["gap"], now - good), now
                    time.sleep(0.05)
        except OSError as error:
            report["ended"].append(str(error))
            time.sleep(0.1)
    report["gap"] = max(report["gap"], time.monotonic() - good)


def main(what, *arguments):
    if what == "serve":
        return serve(*arguments)
    host, port, count, number, mapped = arguments
    call = {"try": attempt, "hold": hold}[what]
    call(host, int(port), int(count), float(number), mapped == "mapped")


if __name__ == "__main__":
    main(*sys.argv[1:])
