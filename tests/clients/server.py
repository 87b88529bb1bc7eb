"""A server for tests: started on a free port, stopped at the end, its memory and state told."""

import json
import re
import subprocess
import threading
import time
import urllib.request


class Server:
    """`ss serve` with these flags, from when it is ready until the block ends."""

    def __init__(self, program, flags, log):
        self.command = [program, "serve", "--port", "0", *flags]
        self.log = log

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.PIPE)
        self.url, ready = None, False
        lines = iter(self.process.stderr.readline, b"")
        for line in lines:
            self.log.write(line)
            found = re.search(rb"listening on (http://\S+?);", line)
            if found:
                self.url = found[1].decode()
            if b"ready:" in line:
                ready = True
                break
        if not ready:
            raise SystemExit(f"`{' '.join(self.command)}` did not start: see {self.log.name}")
        # What it says later must not fill the pipe.
        threading.Thread(target=lambda: [self.log.write(line) for line in lines], daemon=True).start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return answer.read().decode()

    def status(self):
        return json.loads(self.get("/ss/status"))

    def counter(self, name):
        """A counter of /metrics, all its labels together."""
        lines = self.get("/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}(\{{|\s)", line))

    def settles(self, seconds):
        """Whether nothing runs and nothing waits, before so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = self.status()
            if now["active_requests"] == 0 and now["queued"] == 0:
                return True
            time.sleep(0.05)
        return False

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
