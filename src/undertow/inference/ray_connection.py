"""Start, join and leave a Ray cluster: addresses, tokens and what can be reached from elsewhere.

Ray's servers execute what they receive. Those of a local cluster listen on the loopback only, behind a random token.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from undertow.errors import UndertowError
from undertow.models.backend.execution import n_cores

JOIN_TIMEOUT_S = 30.0
"""Seconds until a cluster must be joined."""
OBJECT_STORE_BYTES = 128 * 2**20
"""Size of Ray's object store on this machine, which holds the queries and answers in transit."""
LOOPBACK = "127.0.0.1"
ON_START = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray would print lost workers to standard output, between our results.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment variables of Ray. Its servers execute what they receive, so those of a local cluster listen on the loopback only."""
AUTH_MODE, AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
"""Environment variables of Ray's own token, which it reads when it is imported."""


def check_ray() -> None:
    """Refuse to go on without Ray, which is not imported for that."""
    if importlib.util.find_spec("ray") is None:
        raise UndertowError("--engine ray needs Ray: run `pip install 'undertow[ray]'`")


def check_address(address: str) -> None:
    """Refuse an address that is invalid, or is one of Ray's client."""
    if address.startswith("ray://"):
        raise UndertowError(
            f"--ray-address {address} is an address of Ray's client, which workers cannot fetch queries through; run the command "
            "on a machine of the cluster with --ray-address auto"
        )
    host, _, port = address.rpartition(":")
    if address not in ("", "auto") and not (host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UndertowError(
            f"--ray-address {address!r} is not an address; use auto, or HOST:PORT as `ray start --head` prints it"
        )


def join(address: str) -> bool:
    """Start a cluster, or join the one at `address`; a program that has already joined one stays in it.

    Args:
        address: "" for a cluster of this machine's own, `auto` or host:port.

    Returns:
        Whether this call started or joined it, and `leave` is due.

    Raises:
        UndertowError: there is no such cluster, it can be reached from elsewhere, or the program is in another one.
    """
    with environment(ON_START | (local_environment() if not address else {})):
        import ray

        if ray.is_initialized():
            current = ray.get_runtime_context().gcs_address
            if address not in ("", "auto") and _numeric(address) != _numeric(current):
                raise UndertowError(
                    f"this program has joined the Ray cluster at {current}, and --ray-address {address} is another; leave the "
                    "address out, or call ray.shutdown() before the run"
                )
            return False
        try:
            if address:
                _try_to_join(address)
                ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
            else:
                start(n_cores())
        except (ray.exceptions.RayError, ImportError, OSError, RuntimeError, ValueError) as error:
            leave()
            raise UndertowError(_join_error(address, error)) from error
    return True


def start(n_cpus: int) -> None:
    """Start a local cluster with this number of processors, which ends with this process.

    Raises:
        UndertowError: it can be reached from elsewhere.
    """
    import ray

    with environment(ON_START | local_environment()):
        ray.init(
            "local",
            num_cpus=n_cpus,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            _node_ip_address=LOOPBACK,
        )
    addresses = [node["NodeManagerAddress"] for node in ray.nodes()]
    beyond = [address for address in addresses if not ipaddress.ip_address(address).is_loopback]
    if beyond:
        leave()
        raise UndertowError(
            f"this version of Ray ({ray.__version__}) listens on {beyond[0]}, where others can reach it, and not on the loopback "
            "only; run `pip install ray==2.55.1`, or leave --engine out"
        )


WITNESS = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
if not sys.stdin.buffer.read():
    sys.stderr.write("undertow: the command was ended, by Ray whose raylet or GCS server died, or by a signal; all answers so far are "
                     "stored; run the same command again\\n")
"""


def start_witness() -> subprocess.Popen[bytes]:
    """Start a process that prints a sentence if this one ends without `dismiss`.

    Ray ends the process of its driver, without an exception, when its servers are lost.
    """
    return subprocess.Popen([sys.executable, "-IS", "-c", WITNESS], stdin=subprocess.PIPE, start_new_session=True)


def dismiss(witness: subprocess.Popen[bytes]) -> None:
    """End the witness without a sentence."""
    witness.communicate(b".")


def leave() -> None:
    """Leave the cluster; stop it if this process started it."""
    import ray

    ray.shutdown()


@cache
def local_environment() -> dict[str, str]:
    """Environment of a cluster of this machine: a random token, which Ray reads when it is imported; one of the user's takes precedence.

    Raises:
        UndertowError: the program has imported Ray before, without a token.
    """
    if "ray" in sys.modules and AUTH_MODE not in os.environ and not sys.modules["ray"].is_initialized():
        raise UndertowError(
            f"this program has imported Ray before the run, which can no longer be protected by a token; set {AUTH_MODE}=token and "
            f"{AUTH_TOKEN} before the import, or call ray.init() before the run"
        )
    return ON_LOOPBACK | {AUTH_MODE: "token", AUTH_TOKEN: secrets.token_hex(32)}


def _numeric(address: str) -> str:
    """The address with the host's IP number."""
    host, _, port = address.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{int(port)}"
    except OSError:
        return address


# Ray retries for minutes and prints each attempt, so a subprocess tries first.
TRY = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=50)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _try_to_join(address: str) -> None:
    """Try in a subprocess to join a cluster; raises `OSError` if that fails, or takes too long."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=JOIN_TIMEOUT_S / 3).close()
    try:
        tried = subprocess.run(
            # Without the working folder on the import path: a ray.py there would be executed.
            [sys.executable, "-P", "-c", TRY, address],
            capture_output=True,
            text=True,
            timeout=JOIN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the server there is not Ray, or did not answer for {JOIN_TIMEOUT_S:.0f} seconds") from error
    if tried.returncode:
        errors = [line for line in tried.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
        raise OSError((errors[0].partition(": ")[2] if errors else "no reason given").rstrip("."))


def _join_error(address: str, error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
    if not address:
        return (
            f"Ray cannot be started on this machine ({first}); run `pip install --upgrade 'undertow[ray]'`, free disk "
            "space and shared memory for it, or leave --engine out"
        )
    if address == "auto":
        return (
            f"no Ray cluster was found on this machine ({first}); start it with `ray start`, or leave --ray-address out"
        )
    return f"no Ray cluster can be joined at {address} ({first}); start one there with `ray start --head`, or leave --ray-address out"


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context; those that the user has set take precedence."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
