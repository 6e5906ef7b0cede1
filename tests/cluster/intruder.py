"""A program that tries to get something run on the nodes of a Dask cluster, as some user.

It reads a JSON object: the user as ``uid``, ``certificates`` (each a file with its key, or null for none), and
``targets`` (of each node the address, the operation by which it runs a function, and the name of the files that are
then made). It says, by address, what came of it without TLS and with each of the certificates: "ran", or how it was
refused. The file of an attempt has its number behind the name.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
from pathlib import Path

# Tornado imports it with the first connection, when the user may not read the folder of the checkout any more.
import tornado.platform.asyncio  # noqa: F401
from distributed.core import rpc
from distributed.protocol import pickle

SECONDS = 3


def trusting(certificate: str | None) -> ssl.SSLContext:
    """TLS that asks for nobody's certificate, and shows this one."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if certificate:
        made.load_cert_chain(certificate)
    return made


def refusal(place: str, way: ssl.SSLContext) -> str:
    """What a node says in the handshake of TLS; empty if it goes on."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as plain, contextlib.suppress(TimeoutError):
        try:
            with way.wrap_socket(plain) as encrypted:
                # In TLS 1.3 this side is done with its handshake before the other one looks at the certificate.
                encrypted.recv(1)
        except ssl.SSLError as error:
            return f"refused: {error.reason}"
    return ""


async def attempt(address: str, operation: str, canary: str, way: ssl.SSLContext | None) -> str:
    place = address.rpartition("://")[2]
    scheme, arguments = ("tcp", {}) if way is None else ("tls", {"ssl_context": way})
    work = {"function": Path.touch, "args": (Path(canary),), "kwargs": {}}
    try:
        async with rpc(f"{scheme}://{place}", connection_args=arguments, timeout=SECONDS) as node:
            await getattr(node, operation)(**{name: pickle.dumps(value) for name, value in work.items()}, wait=True)
    except OSError as error:
        return f"refused: {type(error).__name__}" if way is None else await asyncio.to_thread(refusal, place, way)
    return "ran"


async def main() -> None:
    given = json.load(sys.stdin)
    ways = [None, *map(trusting, given["certificates"])]
    os.setuid(given["uid"])
    tried = [
        asyncio.gather(*(attempt(address, operation, f"{name}{number}", way) for number, way in enumerate(ways)))
        for address, operation, name in given["targets"]
    ]
    found = await asyncio.gather(*tried)
    said = {target[0]: answers for target, answers in zip(given["targets"], found, strict=True)}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
