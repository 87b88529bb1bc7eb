"""Many clients at once, good ones and bad ones, against the small model: whether the server stays up, stays small and stays quick.

usage: load.py PROGRAM SECONDS [P99_MS]   (scripts/test-load.sh calls it)

What a client does follows from a seed that is printed; SS_LOAD_SEED sets it.
"""

import asyncio
import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests/clients"))
from server import Server  # noqa: E402

CLIENTS = 64
# No request may take longer: 33 replies of at most 16 tokens, on two shared cores.
PATIENCE = 120
# After a quarter of the time all threads have run and every buffer has been as large as it gets. What may come after: the
# allocator keeps up to a few bodies of 32 MiB that were being refused at the moment of a sample.
GROWTH = 1.10
GROWTH_KIB = 24 << 10

CHAT = [{"role": "user", "content": "How do I make tea?"}]
TOOL = {"name": "get_weather", "description": "The weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}

# A dialect: path, body without `stream`, and what ends a good stream of it.
DIALECTS = [
    ("/v1/chat/completions", lambda n: {"messages": CHAT, "max_tokens": n}, [b"data: [DONE]"]),
    ("/v1/chat/completions", lambda n: {"messages": CHAT, "max_tokens": n, "logprobs": True, "top_logprobs": 3,
                                        "tools": [{"type": "function", "function": TOOL}]}, [b"data: [DONE]"]),
    ("/v1/completions", lambda n: {"prompt": "Once upon a time", "max_tokens": n}, [b"data: [DONE]"]),
    ("/v1/responses", lambda n: {"input": "How do I make tea?", "max_output_tokens": n},
     [b"event: response.completed", b"event: response.incomplete"]),
    ("/v1/messages", lambda n: {"model": "flash-next-nano", "messages": CHAT, "max_tokens": n}, [b"event: message_stop"]),
    ("/api/chat", lambda n: {"messages": CHAT, "options": {"num_predict": n}}, [b'"done":true']),
    ("/api/generate", lambda n: {"prompt": "How do I make tea?", "options": {"num_predict": n}}, [b'"done":true']),
]
QUICK = ["/api/tags", "/api/ps", "/api/version", "/v1/models", "/health", "/metrics", "/ss/status", "/openapi.json", "/"]
BROKEN = [b"", b"{not json", b"[]", b"null", b'"x"', b"\xff\xfe{}", b'{"messages":"hi"}', b'{"messages":[]',
          b'{"messages":[{"role":"user","content":"\\ud800"}]}', b"[" * 50000, b'{"foo":1}', b'{"stream":"yes"}',
          b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}', b'{"model":"other","messages":[]}']
HEADS = [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /api/tags HTTP/1.1\r\n\r\n" + b"\0" * 100,
         b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: abc\r\n\r\n",
         b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 70000 + b"\r\n\r\n"]


class Wrong(Exception):
    """The server did what it must not."""


class Answer:
    def __init__(self, status, headers, body, whole):
        self.status, self.headers, self.body, self.whole = status, headers, body, whole


def request(path, body, method="POST", headers=()):
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


async def read(reader, pause=0, most=None):
    """Reads an answer; with a pause, a few bytes at a time; `most` bytes of it at most."""
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body, whole = b"", False

    async def take(size):
        nonlocal body
        while size:
            piece = await reader.read(min(size, 7) if pause else size)
            if not piece or (most is not None and len(body) > most):
                return False
            body += piece
            size -= len(piece)
            if pause:
                await asyncio.sleep(pause)
        return True

    if headers.get("transfer-encoding") == "chunked":
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            if not await take(size):
                break
            await reader.readexactly(2)
            if size == 0:
                whole = True
                break
    else:
        whole = await take(int(headers.get("content-length", 0)))
    return Answer(status, headers, body, whole)


class Load:
    def __init__(self, port, seconds, seed):
        self.port, self.until, self.seed = port, time.monotonic() + seconds, seed
        self.counts = collections.Counter()
        self.wrong = collections.Counter()

    @contextlib.asynccontextmanager
    async def connection(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    def check(self, answer, allowed=(200,)):
        """Whether an answer may be; a 503 may be where it says that the server is busy, and when to come back."""
        self.counts[f"status {answer.status}"] += 1
        if answer.status == 503 and answer.headers.get("retry-after"):
            return False
        if answer.status not in allowed:
            raise Wrong(f"{answer.status}: {answer.body[:200]!r}")
        return answer.status == 200

    def asked(self, chance, stream):
        path, body, ends = chance.choice(DIALECTS)
        return path, json.dumps({**body(chance.randint(1, 16)), "stream": stream}).encode(), ends

    async def ordinary(self, chance):
        stream = chance.random() < 0.6
        path, body, ends = self.asked(chance, stream)
        async with self.connection() as (reader, writer):
            last = chance.randint(1, 3)
            for number in range(1, last + 1):
                writer.write(request(path, body))
                await writer.drain()
                if number == last and chance.random() < 0.4:
                    writer.write_eof()
                    self.counts["half closes"] += 1
                answer = await read(reader, pause=chance.choice([0, 0, 0, 0.002]))
                good = self.check(answer)
                if not good:
                    break
                if not answer.whole:
                    raise Wrong(f"an answer of {path} broke off: {answer.body[-200:]!r}")
                if stream and not any(end in answer.body for end in ends):
                    raise Wrong(f"a stream of {path} has no end: {answer.body[-300:]!r}")
                self.counts["whole replies"] += 1
        if not good:
            await asyncio.sleep(chance.random())

    async def leaves(self, chance):
        """Goes away somewhere: in its head, its body, the queue, the prompt, or the stream; by a FIN or a reset."""
        path, body, _ = self.asked(chance, chance.random() < 0.7)
        whole = request(path, body)
        async with self.connection() as (reader, writer):
            if chance.random() < 0.3:
                writer.write(whole[: chance.randrange(len(whole))])
            else:
                writer.write(whole)
                with contextlib.suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(chance.random() * 2):
                        answer = await read(reader, most=chance.randint(0, 1500))
                        self.check(answer)
            if chance.random() < 0.5:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        self.counts["departures"] += 1

    async def slow(self, chance):
        path, body, _ = self.asked(chance, True)
        async with self.connection() as (reader, writer):
            writer.write(request(path, body))
            self.check(await read(reader, pause=0.05, most=chance.choice([200, 2000])))
        self.counts["slow readers"] += 1

    async def malformed(self, chance):
        path = chance.choice(DIALECTS)[0]
        async with self.connection() as (reader, writer):
            if chance.random() < 0.3:
                writer.write(chance.choice(HEADS))
                with contextlib.suppress(asyncio.IncompleteReadError):
                    self.check(await read(reader), (200, 400, 403, 431, 505))
            else:
                # An empty conversation is a request to load in Ollama's API.
                body = chance.choice(BROKEN)
                writer.write(request(path, body))
                self.check(await read(reader), (200, 400, 404) if path.startswith("/api/") else (400, 404))
        self.counts["malformed"] += 1

    async def oversized(self, chance):
        path = chance.choice(DIALECTS)[0]
        size = (32 << 20) + chance.randint(1, 1 << 20)
        async with self.connection() as (reader, writer):
            writer.write(request(path, None, headers=[f"content-length: {size}"]))
            sent = 0
            # Some send all of it, some go quiet, some leave.
            stop = chance.choice([0, 1 << 20, size])
            while sent < stop:
                piece = b" " * min(1 << 18, size - sent)
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
            if stop or chance.random() < 0.5:
                self.check(await read(reader), (413,))
        self.counts["oversized"] += 1

    async def quick(self, chance):
        async with self.connection() as (reader, writer):
            for _ in range(3):
                writer.write(request(chance.choice(QUICK), None, "GET"))
                self.check(await read(reader))
        self.counts["quick"] += 1

    async def client(self, number):
        chance = random.Random(self.seed * 1000 + number)
        ways = [self.ordinary, self.leaves, self.slow, self.malformed, self.oversized, self.quick]
        while time.monotonic() < self.until:
            way = chance.choices(ways, [50, 20, 5, 12, 1, 12])[0]
            try:
                async with asyncio.timeout(PATIENCE):
                    await way(chance)
            except TimeoutError:
                self.wrong[f"{way.__name__}: no end after {PATIENCE} s"] += 1
            except Wrong as error:
                self.wrong[f"{way.__name__}: {error}"] += 1
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                # A connection that is turned away may be reset; one that breaks in an ordinary reply may not.
                if way == self.ordinary:
                    self.wrong[f"{way.__name__}: {type(error).__name__}: {error}"] += 1

    async def run(self):
        await asyncio.gather(*(self.client(number) for number in range(CLIENTS)))


def probe(port, seconds, results):
    """Times GET /api/tags, in a process of its own, so that the other clients' work is not measured along."""
    times, until = [], time.monotonic() + seconds
    asked = request("/api/tags", None, "GET")
    while time.monotonic() < until:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
            for _ in range(20):
                start = time.perf_counter()
                stream.sendall(asked)
                got = stream.recv(65536)
                times.append((time.perf_counter() - start) * 1000)
                assert got.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")), got[:100]
                if not got.startswith(b"HTTP/1.1 200"):
                    break
                time.sleep(0.02)
    results.put(times)


async def sample(server, until, samples):
    while time.monotonic() < until:
        samples.append(server.rss_kib())
        await asyncio.sleep(1)


async def both(load, server, samples):
    await asyncio.gather(load.run(), sample(server, load.until, samples))


def main():
    program, seconds = sys.argv[1], float(sys.argv[2])
    p99_bound = float(sys.argv[3]) if len(sys.argv) > 3 else 50.0
    seed = int(os.environ.get("SS_LOAD_SEED", time.time_ns() % 100000))
    failures = []
    with tempfile.NamedTemporaryFile(prefix="ss-load-", suffix=".log", delete=False) as log:
        print(f"{CLIENTS} clients for {seconds:.0f} s, seed {seed}, server's log {log.name}", flush=True)
        with Server(program, ["--backend", "reference", "--log-level", "warn"], log) as server:
            port = int(server.url.rsplit(":", 1)[1])
            load, samples, results = Load(port, seconds, seed), [], multiprocessing.Queue()
            prober = multiprocessing.Process(target=probe, args=(port, seconds, results))
            prober.start()
            asyncio.run(both(load, server, samples))
            times = sorted(results.get(timeout=60))
            prober.join()
            if not server.settles(PATIENCE):
                failures.append(f"something still runs: {server.status()['running']}")
            totals = server.status()["totals"]
            statuses = {status: count for status, count in load.counts.items() if status.startswith("status 5")}
    p50, p99, most = times[len(times) // 2], times[int(len(times) * 0.99)], times[-1]
    warm = samples[len(samples) // 4:]
    part = max(1, len(warm) // 3)
    first, last = statistics.median(warm[:part]), statistics.median(warm[-part:])
    for name, count in sorted(load.counts.items()):
        print(f"  {name:<16} {count}")
    print(f"  tokens read {totals['prompt_tokens']}, written {totals['output_tokens']}; cancelled {totals['cancelled']}")
    print(f"  GET /api/tags: {len(times)} times, median {p50:.1f} ms, p99 {p99:.1f} ms, longest {most:.1f} ms")
    print(f"  resident: {samples[0] >> 10} MiB at first, {max(samples) >> 10} MiB at most; after warm-up {first / 1024:.1f} MiB, "
          f"at the end {last / 1024:.1f} MiB")
    failures += [f"{count} times: {what}" for what, count in load.wrong.most_common(20)]
    if set(statuses) - {"status 503"}:
        failures.append(f"statuses {statuses}")
    if p99 > p99_bound:
        failures.append(f"p99 of GET /api/tags is {p99:.1f} ms, over {p99_bound:.0f} ms")
    if last > max(first * GROWTH, first + GROWTH_KIB):
        failures.append(f"memory grew from {first / 1024:.1f} to {last / 1024:.1f} MiB after warm-up")
    if not load.counts["whole replies"]:
        failures.append("no reply was whole")
    for failure in failures:
        print(f"FAIL  {failure}")
    print("the load was borne" if not failures else "the load was not borne")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
