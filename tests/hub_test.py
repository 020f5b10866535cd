"""Models by directory or hub id; nothing here reaches the network."""

import pathlib

import huggingface_hub
import pytest
from huggingface_hub import constants

from codea1_jax import inputs
from codea1_jax.models import hub
from codea1_jax.tiny import DATA


@pytest.fixture
def calls(monkeypatch, tmp_path):
  """Stands in for the download: what it was asked for."""
  found = []

  def download(repo, **options):
    found.append((repo, options))
    return str(tmp_path)

  monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
  return found


@pytest.mark.parametrize(
  ("name", "repo", "revision"),
  [
    ("hub:Qwen/Qwen2.5-Coder-0.5B", "Qwen/Qwen2.5-Coder-0.5B", None),
    ("hub:org/some_model.x@refs/pr/3", "org/some_model.x", "refs/pr/3"),
  ],
)
def test_a_hub_id_is_fetched(calls, tmp_path, name, repo, revision):
  assert inputs.resolve_model(name) == tmp_path
  [(asked, options)] = calls
  assert (asked, options["revision"]) == (repo, revision)


def test_only_what_is_needed_is_fetched(calls):
  hub.resolve_model("hub:a/b")
  options = calls[0][1]
  names = [
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "merges.txt",
    "chat_template.jinja",
    "README.md",
    "pytorch_model.bin",
    "original/params.json",
    "onnx/model.safetensors",
  ]
  kept = huggingface_hub.utils.filter_repo_objects(
    names,
    allow_patterns=options["allow_patterns"],
    ignore_patterns=options["ignore_patterns"],
  )
  assert list(kept) == names[:8]


def test_local_and_shipped_models_never_touch_the_network(
  monkeypatch, tmp_path
):
  def download(*args, **kwargs):
    raise AssertionError("touched the network")

  monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
  assert hub.resolve_model(str(tmp_path)) == tmp_path
  assert inputs.resolve_model("shipped:code_llm") == DATA / "code_llm"
  (tmp_path / "org" / "name").mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  assert hub.resolve_model("org/name") == pathlib.Path("org/name")
  with pytest.raises(FileNotFoundError, match=r"write hub:org/other$"):
    hub.resolve_model("org/other")
  for name in ("/no/such/model", "./model", "../org/other"):
    with pytest.raises(FileNotFoundError, match=r"does not exist$"):
      hub.resolve_model(name)


@pytest.mark.parametrize("name", ["hub:", "hub:name", "hub:a/b/c", "hub:a/b@"])
def test_a_malformed_id_is_named(calls, name):
  with pytest.raises(ValueError, match=rf"{name}.*hub:ORG/NAME\[@revision\]"):
    hub.resolve_model(name)
  assert not calls


def test_a_failure_is_one_line_that_names_the_id(monkeypatch):
  def download(*args, **kwargs):
    raise ConnectionError("no route to host\nlong advice")

  monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
  with pytest.raises(ValueError, match=r"hub:a/b .*no route") as caught:
    hub.resolve_model("hub:a/b")
  assert "\n" not in str(caught.value)


def cached(root, content):
  """A repository in the layout of huggingface_hub's cache."""
  folder = root / "models--org--name"
  snapshot = folder / "snapshots" / "0123"
  snapshot.mkdir(parents=True)
  (folder / "refs").mkdir()
  (folder / "refs" / "main").write_text("0123")
  (snapshot / "config.json").write_text(content)
  return snapshot


def test_offline_the_cache_serves_and_its_gaps_are_named(monkeypatch, tmp_path):
  # As HF_HUB_OFFLINE=1 and HF_HUB_CACHE do, which are read at import.
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
  snapshot = cached(tmp_path, "{}")
  assert hub.resolve_model("hub:org/name") == snapshot
  with pytest.raises(ValueError, match="cannot fetch hub:org/absent"):
    hub.resolve_model("hub:org/absent")
