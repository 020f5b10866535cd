"""A real headless Chromium, told what to do over its DevTools pipe."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60


def find():
  """The program's path; skips the test where there is none."""
  for name in _NAMES:
    if path := shutil.which(name):
      return path
  pytest.skip("no Chromium here (Debian: apt-get install chromium)")


class Browser:
  """One page of it."""

  def __init__(self, write, read):
    self._write, self._read = write, read
    self._buffer, self._number, self._session = b"", 0, None
    self.problems = []  # what the page said went wrong
    target = self.send("Target.createTarget", url="about:blank")["targetId"]
    self._session = self.send(
      "Target.attachToTarget", targetId=target, flatten=True
    )["sessionId"]
    for domain in ("Page", "Runtime", "Log"):
      self.send(f"{domain}.enable")

  def send(self, method, **parameters):
    """Does something and returns what the browser answers."""
    self._number += 1
    message = {"id": self._number, "method": method, "params": parameters}
    if self._session:
      message["sessionId"] = self._session
    os.write(self._write, json.dumps(message).encode() + b"\0")
    return self._until(lambda m: m.get("id") == self._number)

  def open(self, path: pathlib.Path, width: int, height: int = 900):
    """Loads a file in a window of this size."""
    self.send(
      "Emulation.setDeviceMetricsOverride",
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=False,
    )
    self.send("Page.navigate", url=path.as_uri())
    self._until(lambda m: m.get("method") == "Page.loadEventFired")

  def run(self, expression: str):
    """The value of a JavaScript expression."""
    found = self.send(
      "Runtime.evaluate", expression=expression, returnByValue=True
    )
    assert "exceptionDetails" not in found, found
    return found["result"].get("value")

  def press(self, key: str):
    """A key as a person presses it, wherever the focus is."""
    text = {"text": key} if len(key) == 1 else {}
    for kind in ("keyDown", "keyUp"):
      self.send(
        "Input.dispatchKeyEvent",
        type=kind,
        key=key,
        code=key,
        windowsVirtualKeyCode={"Tab": 9, "Enter": 13}.get(key, 0),
        **(text if kind == "keyDown" else {}),
      )

  def picture(self, path: pathlib.Path):
    """A PNG of the window."""
    data = self.send("Page.captureScreenshot", format="png")["data"]
    path.write_bytes(base64.b64decode(data))

  def _until(self, wanted):
    end = time.monotonic() + _SECONDS
    while True:
      while b"\0" in self._buffer:
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message)
        if wanted(message):
          assert "error" not in message, message
          return message.get("result", {})
      ready, _, _ = select.select([self._read], [], [], end - time.monotonic())
      assert ready, "the browser does not answer"
      data = os.read(self._read, 1 << 20)
      assert data, "the browser has gone"
      self._buffer += data

  def _note(self, message):
    method, said = message.get("method"), message.get("params", {})
    if method == "Runtime.exceptionThrown":
      self.problems.append(said["exceptionDetails"])
    if method == "Log.entryAdded" and said["entry"]["level"] == "error":
      self.problems.append(said["entry"])
    if method == "Runtime.consoleAPICalled" and said["type"] == "error":
      self.problems.append(said["args"])


@contextlib.contextmanager
def start(profile: pathlib.Path):
  """A browser with nothing but this directory to write to."""
  to_browser, write = os.pipe()
  read, from_browser = os.pipe()
  arguments = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
    f" --no-first-run --remote-debugging-pipe --user-data-dir={profile}"
  )
  # The pipe's ends are descriptors 3 and 4 of the browser.
  command = f"exec {find()} {arguments} 3<&{to_browser} 4>&{from_browser}"
  process = subprocess.Popen(
    ["bash", "-c", command],
    pass_fds=(to_browser, from_browser),
    stderr=subprocess.DEVNULL,
    start_new_session=True,
  )
  os.close(to_browser)
  os.close(from_browser)
  try:
    yield Browser(write, read)
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, 9)
    process.wait()
    os.close(write)
    os.close(read)
