"""Messages name an install command that works where mildroute came from: index, file or URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import MissingExtraError, install_command


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installation that hides the real one."""
    info = tmp_path / "site" / "mildroute-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: mildroute\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(info.parent)
    return info


def record(site: Path, **found: Any) -> None:
    (site / "direct_url.json").write_text(json.dumps(found))


def test_from_an_index_the_name_is_enough(site: Path) -> None:
    assert install_command("text") == "pip install 'mildroute[text]'"
    error = MissingExtraError.for_package("torch", extra="text", user="this encoder")
    assert str(error) == "this encoder needs torch; run: pip install 'mildroute[text]'"


@pytest.mark.parametrize(("editable", "option"), [(True, "--editable "), (False, "")])
def test_from_a_checkout_the_folder_is_named(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool, option: str
) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    record(site, url=checkout.as_uri(), dir_info={"editable": editable})
    assert install_command("serve") == f"pip install {option}'{checkout}[serve]'"
    monkeypatch.chdir(checkout)
    assert install_command("serve") == f"pip install {option}'.[serve]'"


def test_from_a_wheel_the_file_is_named_while_it_is_there(site: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "mildroute-0.1.0-py3-none-any.whl"
    wheel.touch()
    record(site, url=wheel.as_uri(), archive_info={})
    assert install_command("report") == f"pip install '{wheel}[report]'"
    wheel.unlink()
    assert install_command("report") == "pip install 'mildroute[report]'"


def test_from_a_repository_or_an_address_the_same_is_installed_again(site: Path) -> None:
    url, commit = "https://example.com/mildroute.git", "0123abc"
    record(site, url=url, vcs_info={"vcs": "git", "commit_id": commit})
    assert install_command("text") == f"pip install 'mildroute[text] @ git+{url}@{commit}'"
    record(site, url="https://example.com/mildroute.whl", archive_info={})
    said = "pip install 'mildroute[text] @ https://example.com/mildroute.whl'"
    assert install_command("text") == said


def test_a_folder_whose_name_would_end_the_quotes_is_not_named(site: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "o'clock"
    checkout.mkdir()
    record(site, url=checkout.as_uri(), dir_info={})
    assert install_command("text") == "pip install 'mildroute[text]'"
