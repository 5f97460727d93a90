"""A call of the program at a terminal: a pseudo-terminal whose keys the test presses and whose screen it reads."""
import os
import pathlib
import pty
import select
import signal
import tempfile
import termios
import time
import uuid

import program

CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """The program, alone or under mpirun, as the only job of a terminal of its own. Its standard error goes to files, as
    in program.Call."""

    def __init__(self, arguments, ranks=0):
        self.folder = tempfile.TemporaryDirectory()
        self.mark = uuid.uuid4().hex
        self.screen = b""
        self.seen = 0
        environment = os.environ | {"SHEAF_TEST_MARK": self.mark, "SHEAF_TEST_STDERR": f"{self.folder.name}/stderr"}
        words = program.command(arguments, ranks)
        if ranks:
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, environment)
        quiet = termios.tcgetattr(self.keys)
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(self.keys, termios.TCSANOW, quiet)

    def _read(self, seconds):
        """What comes within so many seconds; False at the end."""
        if not select.select([self.keys], [], [], seconds)[0]:
            return True
        try:
            new = os.read(self.keys, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return False
        self.screen += new.replace(b"\r\n", b"\n")
        return bool(new)

    def wait_for(self, text):
        """What the screen shows up to the next such text."""
        text = text.encode()
        end = time.monotonic() + program.TIME_LIMIT
        while text not in self.screen[self.seen :]:
            if time.monotonic() > end or not self._read(0.5):
                raise AssertionError(f"{text} does not come, but {self.screen[self.seen :]}, {self.errors()}")
        at = self.screen.index(text, self.seen)
        new, self.seen = self.screen[self.seen : at], at + len(text)
        return new.decode()

    def wait_more(self, n):
        """Until so many bytes have come that nobody looked at."""
        while len(self.screen) < self.seen + n:
            if not self._read(program.TIME_LIMIT):
                raise AssertionError(f"the program ended: {self.errors()}")

    def press(self, keys):
        os.write(self.keys, keys if isinstance(keys, bytes) else keys.encode())

    def ask(self, text):
        """Types a line at the prompt and returns the answer, without the line end behind it."""
        self.press(text + "\n")
        return self.wait_for("\n> ")

    def errors(self):
        return [line for file in sorted(pathlib.Path(self.folder.name).iterdir()) for line in file.read_text().splitlines()]

    def _end(self):
        """Waits for the end, and returns the exit status."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        os.close(self.keys)
        return status

    def close(self):
        """For a test that failed: ends what is still running."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._end()
            program.left_running(self.mark.encode(), patience=1)
            self.folder.cleanup()

    def finish(self):
        """What came last, the exit status, standard error, and the processes that are left."""
        end = time.monotonic() + program.TIME_LIMIT
        while time.monotonic() < end and self._read(0.5):
            pass
        if time.monotonic() >= end:
            os.kill(self.pid, signal.SIGKILL)
        status = self._end()
        left = program.left_running(self.mark.encode())
        errors = self.errors()
        self.folder.cleanup()
        return self.screen[self.seen :].decode(), status, errors, left
